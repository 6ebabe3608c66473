-- The largest usual volume. `volumes` are those of the days with exports, out of `days` days (0 to 28). The result is the
-- greater of twice the median of these volumes, and the median of all days plus four deviations (1.4826 × the median deviation
-- is a standard deviation). Medians, so that one unusual volume does not make the next one usual. At least 1,000 rows, because
-- after 28 days without an export every median is 0. Null for fewer than 3 days.
-- If more than half of the days had none, the median and the deviation of all days are 0. That is true of most viewers, and
-- filling lists with those zeros is the expensive part.
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
