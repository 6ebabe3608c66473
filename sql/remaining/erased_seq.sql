-- The numbers of erased envelopes in sessions of which others remain.
from (
    from erased_seq
    union
    select key_id, session, seq
    from erased_envelope
    where session is not null and seq between 0 and 999999
)
where (key_id, session) not in (from erased_session)
order by all;
