-- One row per AI question with feedback (an x-feedback event) in the period or at most 24 hours after it: the ingest_seq of the
-- ai-query event with which the question begins, and its newest feedback. Feedback belongs to the last question of its deployment,
-- session and chat at or before it, at most 24 hours older. This is the last submitted event or, without one, the last answer or
-- error. As in ai_pair, surfaces and tenants make no difference, and all events without a session count as one session.
-- The steps are not materialized, so that the statistics of the type show that a store without feedback has no rows here.
create or replace view ai_feedback as
with feedback as not materialized (
    select
        hash(deployment, session, chat_id) as chat_key,
        {
            occurred_at: occurred_at, seq: coalesce(seq, 9007199254740992), ingest_seq: ingest_seq
        } as sort_key,
        -- After all questions of this instant.
        {occurred_at: occurred_at, seq: 9007199254740993, ingest_seq: 0::bigint} as question_limit,
        occurred_at,
        rating,
        feedback_text
    from event_between(
        getvariable('since')::timestamp, getvariable('until')::timestamp + interval 24 hour, is_any_tenant := true
    )
    where type = 'x-feedback'
),
stage as not materialized (
    select
        hash(deployment, session, chat_id) as chat_key,
        {
            occurred_at: occurred_at, seq: coalesce(seq, 9007199254740992), ingest_seq: ingest_seq
        } as sort_key,
        status = 'submitted' as is_question,
        occurred_at,
        ingest_seq
    from event_between(
        getvariable('since')::timestamp - interval 24 hour,
        getvariable('until')::timestamp + interval 24 hour,
        is_any_tenant := true
    )
    where type = 'ai-query'
      and hash(deployment, session, chat_id) in (select chat_key from feedback)
),
assigned as (
    select
        coalesce(
            if(question.occurred_at >= feedback.occurred_at - interval 24 hour, question.ingest_seq, null),
            if(finished.occurred_at >= feedback.occurred_at - interval 24 hour, finished.ingest_seq, null)
        ) as question_ingest_seq,
        feedback.sort_key,
        rating,
        feedback_text
    from feedback
    asof left join (from stage where is_question) as question
        on feedback.chat_key = question.chat_key and feedback.question_limit >= question.sort_key
    asof left join (from stage where not is_question) as finished
        on feedback.chat_key = finished.chat_key and feedback.question_limit >= finished.sort_key
)
select question_ingest_seq, rating, feedback_text
from assigned
where question_ingest_seq is not null
qualify row_number() over (partition by question_ingest_seq order by sort_key desc) = 1;

comment on view ai_feedback is 'The newest feedback on each AI question, in the period and 24 hours after it.';
