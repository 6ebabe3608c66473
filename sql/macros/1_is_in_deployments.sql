-- Whether the reader may see rows of this deployment. The scope on deployments is enforced only here. A row without a
-- deployment (null) is visible only if the variable is unset. With an empty list, no row is visible.
create or replace macro is_in_deployments(number) as
(getvariable('deployments') is null or list_contains(getvariable('deployments')::bigint[], number));
