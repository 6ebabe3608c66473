-- Maps journal lines to the columns of the tables event and action.

-- One row per accepted envelope. Its time is corrected only if the clocks of client and server differ by more than a minute,
-- because transit takes time too. No event occurs more than a minute after its receipt.
create or replace temp view incoming_envelope as
with envelope_with_skew as (
    select
        *,
        coalesce(envelope.id, id)::uuid as envelope_id,
        instant_of(envelope.timestamp) as client_at,
        instant_of(sent_at) as sent_timestamp,
        make_timestamp(received_at * 1000) as received_timestamp,
        epoch_us(received_timestamp) - epoch_us(sent_timestamp) as skew_us
    from line
    where kind in ('event', 'action')
)
select
    *,
    greatest(
        least(
            client_at + to_microseconds(if(abs(skew_us) > 60000000, skew_us, 0)),
            received_timestamp + interval 1 minute
        ),
        timestamp '0001-01-01'
    ) as occurred_at
from envelope_with_skew;

-- One row per event. Deployment and tenant come from the context, or else from the payload of a `ready` event.
create or replace temp view incoming_event as
select
    envelope_id as event_id,
    ingest_seq,
    occurred_at,
    client_at,
    sent_timestamp as sent_at,
    received_timestamp as received_at,
    key_id,
    is_internal,
    coalesce(context.deployment, envelope.payload.deploymentId) as deployment,
    context.session as session,
    context.viewer as viewer,
    coalesce(context.tenant, envelope.payload.embedTenant) as tenant,
    context.page as page,
    context.vendor as vendor,
    envelope.seq as seq,
    split_part(envelope.type, ':', 3) as type,
    envelope.surface as surface,
    envelope.payload.mode as mode,
    envelope.payload.surface as payload_surface,
    envelope.payload.publicId as public_id,
    envelope.payload.path as path,
    envelope.payload.previousPath as previous_path,
    envelope.payload.title as title,
    envelope.payload.widgetCount as widget_count,
    envelope.payload.loadDurationMs as load_duration_ms,
    envelope.payload.format as format,
    envelope.payload.target as target,
    envelope.payload.widgetId as widget_id,
    envelope.payload.rowCount as row_count,
    envelope.payload.member as member,
    envelope.payload.value as value,
    envelope.payload.filters as filters,
    envelope.payload.query as query,
    envelope.payload.status as status,
    envelope.payload.chatId as chat_id,
    envelope.payload.agentId as agent_id,
    envelope.payload.rating as rating,
    envelope.payload.text as feedback_text,
    envelope.payload.message as message,
    envelope.payload.name as error_name,
    envelope.payload.context as error_context,
    envelope.payload.fatal as fatal,
    extra,
    envelope_extra
from incoming_envelope
where kind = 'event';

-- One row per action. The spec does not list all fields of a theme (6.5), so journal lines have the whole
-- payload of a theme in `extra`.
create or replace temp view incoming_action as
select
    envelope_id as action_id,
    ingest_seq,
    occurred_at,
    client_at,
    sent_timestamp as sent_at,
    received_timestamp as received_at,
    key_id,
    is_internal,
    context.deployment as deployment,
    context.session as session,
    context.viewer as viewer,
    context.tenant as tenant,
    context.page as page,
    context.vendor as vendor,
    envelope.seq as seq,
    split_part(envelope.type, ':', 3) as type,
    envelope.payload.scheme as scheme,
    case when is_theme then coalesce(embed_theme, other_fields) end as theme,
    envelope.payload.locale as locale,
    envelope.payload.filterUrlParameter as filter_url_parameter,
    envelope.payload.path as path,
    case
        when not is_theme then extra
        -- Fields next to the theme; none if the payload is the theme itself.
        when embed_theme is not null then other_fields
    end as extra,
    envelope_extra
from (
    select
        *,
        split_part(envelope.type, ':', 3) = 'set-theme' as is_theme,
        if(is_theme, nullif(extra -> '$.embedTheme', 'null'::json), null) as embed_theme,
        if(is_theme, nullif(json_merge_patch(coalesce(extra, '{}'), '{"embedTheme": null}'), '{}'::json), null) as other_fields
    from incoming_envelope
    where kind = 'action'
);
