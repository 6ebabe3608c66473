-- One row per accepted event and action: its envelope and context, converted back to JSON. Events first, each table in its own
-- order. Not limited by scope: readers join it by ingest_seq with rows in scope, or own the data folder.
-- Nulls are omitted, because the store does not distinguish null from a missing member.
-- A ready event has its deployment and tenant in the payload instead of the context.
create or replace view envelope_json as
with stored_envelope as (
    select
        'event' as direction,
        columns(event.* exclude (event_id, deployment, tenant, mode)),
        event_id as id,
        if(type = 'ready', null, deployment) as deployment,
        if(type = 'ready', null, tenant) as tenant,
        if(type = 'ready', to_json({embedTenant: tenant, deploymentId: deployment, mode: mode}), '{}') as ready_members,
        json_merge_patch('{}', {
            surface: payload_surface, publicId: public_id, path: path, previousPath: previous_path, title: title,
            widgetCount: number_of(widget_count), loadDurationMs: number_of(load_duration_ms), format: format, target: target,
            widgetId: widget_id, rowCount: number_of(row_count), member: member, query: query, status: status, chatId: chat_id,
            agentId: agent_id, rating: rating, text: feedback_text, message: message, name: error_name, context: error_context, fatal: fatal
        }::json) as catalog_members,
        coalesce('"value":' || value, '"filters":' || filters) as json_member
    from event
    union all by name
    select
        'action' as direction,
        columns(action.* exclude (action_id, theme)),
        action_id as id,
        '{}' as ready_members,
        json_merge_patch('{}', {
            scheme: scheme, locale: locale, filterUrlParameter: filter_url_parameter, path: path
        }::json) as catalog_members,
        '"embedTheme":' || theme as json_member
    from action
)
select
    ingest_seq,
    received_at,
    sent_at,
    json_merge_patch(
        '{}', {deployment: deployment, session: session, viewer: viewer, tenant: tenant, page: page, vendor: vendor}::json
    )::varchar as context,
    '{'
    || concat_ws(
        ',',
        array_slice(json_merge_patch('{}', {
            id: id,
            seq: seq,
            source: coalesce(getvariable('service_name')::varchar, 'svc') || '-embed',
            direction: direction,
            type: coalesce(getvariable('service_name')::varchar, 'svc') || ':' || direction || ':' || type,
            timestamp: number_of(epoch_us(client_at) / 1000),
            surface: surface
        }::json)::varchar, 2, -2),
        '"payload":{'
        || concat_ws(
            ',',
            nullif(array_slice(ready_members::varchar, 2, -2), ''),
            nullif(array_slice(catalog_members::varchar, 2, -2), ''),
            json_member,
            nullif(array_slice(extra::varchar, 2, -2), '')
        )
        || '}',
        nullif(array_slice(envelope_extra::varchar, 2, -2), '')
    )
    || '}' as envelope
from stored_envelope;

comment on view envelope_json is
'Accepted events and actions as the envelope and context that were sent, in JSON. Not limited by scope.';
