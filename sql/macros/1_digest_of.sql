-- A number for a text, which is smaller than the text and faster to compare and count; null for null. Half an MD5, because
-- stored digests must be the same in every version of DuckDB. With a hundred million texts, the probability that any two share
-- a digest is about 1 in 3,700. A sender who finds two such texts gains no more than by sending one of them twice.
create or replace macro digest_of(text) as
(md5_number(text::varchar) & 18446744073709551615)::ubigint;
