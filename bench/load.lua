-- The script of wrk. Each request is a line of the bodies file, in which a hex counter replaces `@@@@@@@@` in every id.
-- No two events of a run share an id, so that the server finds no duplicates.
local mark, requests, position, sent = "@@@@@@@@", {}, 0, 0

local function split(text)
    local pieces, start = {}, 1
    while true do
        local first, last = text:find(mark, start, true)
        if not first then break end
        pieces[#pieces + 1] = text:sub(start, first - 1)
        pieces[#pieces + 1] = mark
        start = last + 1
    end
    pieces[#pieces + 1] = text:sub(start)
    return pieces
end

function init(arguments)
    local bodies, count, key = arguments[1], arguments[2], arguments[3]
    sent = tonumber(count)
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. key }
    for name, value in pairs(wrk.headers) do headers[name] = value end
    for line in io.lines(bodies) do
        -- Ids keep their length, so Content-Length stays right.
        requests[#requests + 1] = split(wrk.format("POST", nil, headers, line))
    end
end

function request()
    position, sent = position % #requests + 1, sent + 1
    local pieces, id = requests[position], string.format("%08x", sent)
    for index = 2, #pieces, 2 do pieces[index] = id end
    return table.concat(pieces)
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"duration_us":%d,"request_count":%d,"p50_us":%d,"p99_us":%d,"refused_count":%d,"broken_count":%d}\n',
        summary.duration, summary.requests, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout
    ))
end
