-- Up to what a volume is usual after so many days (0 to 28), of which some had these volumes and all others none: up to twice
-- the median of those, and up to the median of all days and four deviations from it (1.4826 of the median deviation is a
-- standard deviation). Medians, so that what was unusual doesn't become usual by having happened. Null where fewer than 3
-- days are known.
create or replace macro usual_volume_max(volumes, days) as
if(
    days >= 3,
    ceil(greatest(
        2 * list_median(volumes),
        list_median(list_resize(coalesce(volumes, []), days, 0))
        + 4 * 1.4826 * list_mad(list_resize(coalesce(volumes, []), days, 0))
    )),
    null
)::bigint;
