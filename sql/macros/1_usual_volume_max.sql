-- Up to what a volume is usual after so many days (0 to 28), of which some had these volumes and all others none: up to twice
-- the median of those, and up to the median of all days and four deviations from it (1.4826 of the median deviation is a
-- standard deviation). Medians, so that what was unusual doesn't become usual by having happened. 1,000 rows are
-- always usual: after 28 days without an export every median is 0. Null where fewer than 3 days are known.
-- Where more than half of the days had none, the median of all and the deviation from it are 0: so it is with most viewers,
-- and to put those zeros into lists is what costs.
create or replace macro usual_volume_max(volumes, days) as
if(
    days >= 3,
    ceil(greatest(
        1000,
        2 * list_median(volumes),
        if(
            2 * coalesce(len(volumes), 0) < days,
            0,
            list_median(list_resize(volumes, days, 0)) + 4 * 1.4826 * list_mad(list_resize(volumes, days, 0))
        )
    )),
    null
)::bigint;
