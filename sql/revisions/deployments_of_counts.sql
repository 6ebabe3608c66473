-- Deployments of rejections of which a load has only the counts.
select distinct deployment from counted_rejection;
