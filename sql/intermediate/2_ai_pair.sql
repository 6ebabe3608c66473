-- One row per AI query in scope. The protocol has no query id, so stages are paired by their order: within a deployment,
-- session, chat and text, each end (completed or error) closes the oldest open question (submitted) of the 24 hours before it.
-- Whether a question is open depends only on the stages of these 24 hours. So the rows of a period depend only on the stages
-- at most 24 hours outside it (docs/decisions/0032). An end without an open question is a separate row, without submitted_at.
-- Stages on any surface and of any tenant are paired, and the pairs are filtered afterwards. So a question before midnight with
-- an answer after it is one row. A queue is the stages of one deployment, session, chat and text.
create or replace view ai_pair as
with counted as (
    select
        *,
        status = 'submitted' as is_question,
        -- Without `filter`: sql/README.md.
        count(if(status = 'submitted', 1, null)) over so_far as question_count,
        count(if(status = 'submitted', null, 1)) over so_far as end_count,
        count(*) over older as older_count,
        lead(if(status = 'submitted', occurred_at, null)) over so_far <= occurred_at + interval 24 hour as is_before_question,
        -- Questions minus ends before this stage.
        question_count - end_count - if(is_question, 1, -1) as balance
    from ai_stage
    window
        so_far as (
            partition by queue_key order by occurred_at, seq, ingest_seq
            rows between unbounded preceding and current row
        ),
        older as (
            partition by queue_key order by occurred_at
            range between unbounded preceding and interval '24:00:00.000001' preceding
        )
),
-- The balance falls with each end that has no open question. So the questions that are open before a stage are the balance
-- above its minimum in the 24 hours.
matched as (
    select
        *,
        balance - min(balance) over (
            partition by queue_key order by occurred_at, seq, ingest_seq
            rows between question_count + end_count - 1 - older_count preceding and current row
        ) as open_count
    from counted
),
-- An end closes the oldest of the latest open_count questions: they are one group. Every other end is a group, with a negative
-- number.
paired as (
    select
        any_value(deployment) as deployment,
        any_value(ingest_seq) filter (is_question) as submitted_ingest_seq,
        any_value(ingest_seq) filter (not is_question) as finished_ingest_seq,
        coalesce(any_value(surface) filter (is_question), any_value(surface)) as surface,
        coalesce(any_value(tenant) filter (is_question), any_value(tenant)) as tenant,
        coalesce(any_value(viewer) filter (is_question), any_value(viewer)) as viewer,
        coalesce(any_value(agent_id) filter (not is_question), any_value(agent_id)) as agent_id,
        any_value(occurred_at) filter (is_question) as submitted_at,
        any_value(occurred_at) filter (not is_question) as finished_at,
        any_value(status) filter (not is_question) as finished_status,
        bool_or(has_no_session)
            or coalesce(bool_or(is_question and (open_count > 0 or is_before_question)), false) as is_ambiguous
    from matched
    group by
        queue_key,
        case
            when is_question then question_count
            when open_count > 0 then question_count - open_count + 1
            else -end_count
        end
)
select
    paired.* exclude (finished_status),
    coalesce(submitted_at, finished_at) as occurred_at,
    case
        when finished_status is not null then finished_status
        -- The server's clock, in UTC, independent of the session's time zone; tests set their own.
        when submitted_at + interval 10 minutes
            > current_moment() then 'pending'
        else 'abandoned'
    end as status,
    (epoch_us(finished_at) - epoch_us(submitted_at)) // 1000 as latency_ms,
    feedback.rating,
    feedback.feedback_text
from paired
left join ai_feedback as feedback on coalesce(submitted_ingest_seq, finished_ingest_seq) = feedback.question_ingest_seq
where is_in_period(coalesce(submitted_at, finished_at))
  and is_on_surface(surface)
  and is_of_tenant(tenant);

comment on view ai_pair is
'AI queries in scope with their stages paired: when each was submitted, and when and how it ended.';
