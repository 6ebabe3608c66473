-- Deletes salvaged versions of users and groups that are older than others, and members of groups that no file has.
delete from directory_user
where ingest_seq < (select max(newer.ingest_seq) from directory_user as newer where newer.user_id = directory_user.user_id);

delete from directory_group
where ingest_seq < (select max(newer.ingest_seq) from directory_group as newer where newer.group_id = directory_group.group_id);

delete from directory_member where group_id not in (select group_id from directory_group where resource is not null);
