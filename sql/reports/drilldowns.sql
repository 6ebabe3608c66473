-- One row per deployment, surface and measure with a drilldown, over the whole period.
create or replace view drilldowns as
select
    deployment,
    surface,
    member,
    count(*) as drilldown_count,
    count(distinct session) as session_count,
    count(distinct viewer) as viewer_count
from event_in_scope
where type = 'drilldown'
group by all
order by drilldown_count desc, deployment, surface, member;

comment on view drilldowns is
'Drilldowns
Which measures do people drill into?
One row per deployment, surface and measure.';
comment on column drilldowns.deployment is
'Deployment; null when neither the host page nor the session''s ready event named one.';
comment on column drilldowns.surface is 'Surface on which the measure was clicked.';
comment on column drilldowns.member is 'Fully qualified name of the measure.';
comment on column drilldowns.drilldown_count is 'Drilldowns into the measure.';
comment on column drilldowns.session_count is 'Distinct sessions with a drilldown into the measure.';
comment on column drilldowns.viewer_count is 'Distinct viewers with a drilldown into the measure.';
