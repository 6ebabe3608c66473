-- One row per day and deployment on which, or in the 29 days before which, anybody was seen. Any event with a viewer counts.
-- Days are the reader's (`timezone`), whatever `interval` says.
create or replace view activity as
select
    day,
    deployment,
    coalesce(sum(viewer_count) filter (days_ago = 0), 0)::bigint as daily_viewer_count,
    coalesce(sum(viewer_count) filter (days_ago < 7), 0)::bigint as weekly_viewer_count,
    sum(viewer_count)::bigint as monthly_viewer_count
from viewer_recency
group by day, deployment
order by day, deployment;

comment on view activity is
'Activity
How many people are active in a day, a week and a month, and is it growing?
One row per day and deployment.';
comment on column activity.day is 'Day, in the time zone asked for, else in UTC.';
comment on column activity.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column activity.daily_viewer_count is 'Distinct viewers with any event on the day.';
comment on column activity.weekly_viewer_count is 'Distinct viewers with any event in the 7 days that end with the day.';
comment on column activity.monthly_viewer_count is 'Distinct viewers with any event in the 30 days that end with the day.';
