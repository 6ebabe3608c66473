-- The largest usual volume. `volumes` are the volumes of the days with exports, out of `days` days (0 to 28). The result is
-- the greater of twice the median of these volumes, and the median of all days plus four standard deviations (1.4826 × the
-- median deviation). It is at least 1,000 rows, and null for fewer than 3 days. Medians keep one unusual volume from making
-- the next one usual.
-- If more than half of the days had no export, the median and the deviation of all days are 0. The macro then builds no list
-- of zeros, because that would be slow.
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
