-- A text in lowercase, with # for each number and id, "…" for each quoted part, and single spaces. For example,
-- `Sales of "Acme"  in 2025?` and `sales of 'Initech' in 2026?` both become `sales of "…" in #?`. An id is a UUID, a text that
-- begins with 0x, or hexadecimal: eight or more characters, or six or seven with a decimal digit, so that `facade` stays a
-- word. RE2 has no look-ahead, so each position of the first digit is an alternative.
--
-- Senders choose these texts, so their length is limited: only the first 1,000 characters count, up to the last space. In a
-- run of more than 30 combining marks, only the first 30 remain (UAX #15, section 13), because sorting takes quadratic time.
create or replace macro shape_of(original) as
trim(regexp_replace(
    regexp_replace(
        regexp_replace(
            regexp_replace(
                lower(nfc_normalize(regexp_replace(
                    if(length(original) > 1000, regexp_replace(left(original, 1000), '\s\S*$', ' …'), original),
                    '(\p{M}{30})\p{M}+', '\1', 'g'
                ))),
                '"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|`[^`]*`', '"…"', 'g'
            ),
            '(^|[\s(=:,])''[^'']*''', '\1"…"', 'g'
        ),
        '(^|[^a-z0-9])(?:(?:'
        || '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|0x[0-9a-f]+'
        || '|[a-f][0-9a-f]{7,}|[a-f]\d[0-9a-f]{4,}|[a-f]{2}\d[0-9a-f]{3,}|[a-f]{3}\d[0-9a-f]{2,}|[a-f]{4}\d[0-9a-f]+'
        || '|[a-f]{5,6}\d[0-9a-f]*|\d[a-f][0-9a-f]{4,}|\d{2}[a-f][0-9a-f]{3,}|\d{3}[a-f][0-9a-f]{2,}|\d{4}[a-f][0-9a-f]+'
        || '|\d{5,}[a-f][0-9a-f]*)\b|[+-]\p{Nd}+(?:[.,:/-]\p{Nd}+)*)'
        || '|\p{Nd}+(?:[.,:/-]\p{Nd}+)*',
        '\1#', 'g'
    ),
    '[\s\p{Z}]+', ' ', 'g'
));
