-- Deployments of the rejections that a load only counts.
select distinct deployment from counted_rejection;
