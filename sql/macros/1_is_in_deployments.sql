-- Whether the reader may see rows of this deployment. The scope on deployments is enforced only here. A row without a
-- deployment (null) is visible only without a list of deployments, and an empty list makes nothing visible.
create or replace macro is_in_deployments(number) as
(getvariable('deployments') is null or list_contains(getvariable('deployments')::bigint[], number));
