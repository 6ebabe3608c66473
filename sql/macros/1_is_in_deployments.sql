-- Whether the reader may see what belongs to this deployment. This is the one place where the scope on deployments is
-- enforced: what has none (null) is seen only where no deployments are asked for, and an empty list sees nothing.
create or replace macro is_in_deployments(number) as
(getvariable('deployments') is null or list_contains(getvariable('deployments')::bigint[], number));
