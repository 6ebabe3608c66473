-- Adds the AI query stages of a batch to question_stage.
insert into question_stage by name
select getvariable('batch_id')::bigint as batch_id, *
from question_stage_of_event()
where ingest_seq between getvariable('rollup_from')::bigint and getvariable('rollup_to')::bigint;
