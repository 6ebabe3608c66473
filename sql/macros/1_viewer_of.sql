-- The value by which a user of the directory is found among the viewers of events: the value of an
-- attribute (EMBEDSINK_VIEWER_ATTRIBUTE). Of several emails, the primary one comes first.
create or replace macro viewer_of(resource, attribute) as
case attribute
    when 'userName' then resource ->> '$.userName'
    when 'emails' then coalesce(
        list_filter(from_json(resource -> '$.emails', '[{"value": "varchar", "primary": "boolean"}]'), lambda email: email."primary")[1].value,
        resource ->> '$.emails[0].value'
    )
    when 'employeeNumber' then
        resource ->> '$."urn:ietf:params:scim:schemas:extension:enterprise:2.0:User".employeeNumber'
    else resource ->> '$.externalId'
end;
