-- The script of wrk. Each request is a line of the bodies file. A hexadecimal counter replaces `@@@@@@@@` in each id,
-- so that the server finds no duplicates.
local placeholder = "@@@@@@@@"
local requests, position, counter = {}, 0, 0

local function split(text)
    local parts, start = {}, 1
    while true do
        local first, last = text:find(placeholder, start, true)
        if not first then break end
        parts[#parts + 1] = text:sub(start, first - 1)
        parts[#parts + 1] = placeholder
        start = last + 1
    end
    parts[#parts + 1] = text:sub(start)
    return parts
end

function init(arguments)
    local bodies, first_id, key = arguments[1], arguments[2], arguments[3]
    counter = tonumber(first_id)
    local headers = { ["Content-Type"] = "application/json", ["Authorization"] = "Bearer " .. key }
    for name, value in pairs(wrk.headers) do headers[name] = value end
    for line in io.lines(bodies) do
        -- Ids keep their length, so Content-Length stays correct.
        requests[#requests + 1] = split(wrk.format("POST", nil, headers, line))
    end
end

function request()
    position, counter = position % #requests + 1, counter + 1
    local parts, id = requests[position], string.format("%08x", counter)
    for index = 2, #parts, 2 do parts[index] = id end
    return table.concat(parts)
end

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"duration_us":%d,"request_count":%d,"p50_us":%d,"p99_us":%d,"refused_count":%d,"broken_count":%d}\n',
        summary.duration, summary.requests, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write + errors.timeout
    ))
end
