-- What a text has in common with those that differ only in case, spacing, numbers, ids and quoted parts:
-- `Sales of "Acme"  in 2025?` and `sales of 'Initech' in 2026?` both are `sales of "…" in #?`. An apostrophe within a word
-- quotes nothing.
create or replace macro shape_of(original) as
trim(regexp_replace(
    regexp_replace(
        regexp_replace(
            regexp_replace(
                lower(nfc_normalize(original)),
                '"[^"]*"|“[^”]*”|„[^“”]*[“”]|«[^»]*»|`[^`]*`', '"…"', 'g'
            ),
            '(^|[\s(=:,])''[^'']*''', '\1"…"', 'g'
        ),
        '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16,}\b|\d+([.,:/-]\d+)*', '#', 'g'
    ),
    '\s+', ' ', 'g'
));
