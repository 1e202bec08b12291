#!lua name=leasehold

-- Fencing in Redis: writes that carry a token, and a fence that refuses those whose lease is over.
--
--   FCALL leasehold_seal    1 FENCE             [exclusive|shared] TOKEN
--   FCALL leasehold_set     2 FENCE KEY         [exclusive|shared] [once] TOKEN VALUE [option of SET ...]
--   FCALL leasehold_hset    2 FENCE KEY         [exclusive|shared] [once] TOKEN FIELD VALUE [FIELD VALUE ...]
--   FCALL leasehold_del     N FENCE KEY [...]   [exclusive|shared] [once] TOKEN
--   FCALL leasehold_call    2 FENCE KEY         [exclusive|shared] [once] TOKEN COMMAND [argument ...]
--   FCALL leasehold_highest 1 FENCE
--   FCALL leasehold_version 0
--
-- FENCE is a hash: `token` is the highest token seen, `used` the highest that a `once` has let
-- through. It is called `fence:{invoice/42}` for the resource invoice/42, and nothing else is a fence:
-- so no call can take a fence for data, whoever's it is. Data keys that share the braces live in the same cluster slot.
--
-- Seal answers the highest token there was before, null if there was none. A write answers what
-- its command answers. A refusal is an error: one word, then JSON that names both tokens,
--
--   STALETOKEN {"code":"stale_token","resource":"invoice/42","token":33,"highest_token":34}
--
-- Redis runs a function to its end before anything else, and replicates and logs all that it wrote
-- as one transaction: that makes check and write one step, also for a crash. What is left to get
-- right here is the order: all that can be refused is refused before the first write, and the
-- fence rises before the data changes. If the command on the data fails nevertheless, the fence has
-- merely seen the token of a holder that exists.

local VERSION = 2

-- The largest integer that neither JSON nor a Lua number rounds.
local TOKEN_MAX = 9007199254740991
local RESOURCE_BYTES_MAX = 512
-- Lua can hand over some 8,000 values at once. More must not fail between the fence and the data.
local ARGUMENTS_MAX = 4096

-- Commands with one key, which comes first, so that no argument can smuggle in the key of a fence.
-- Left out: BITFIELD, whose integers of 64 bits a Lua number would round on their way back.
local COMMANDS = {
    APPEND = true, DECR = true, DECRBY = true, EXPIRE = true, EXPIREAT = true, GEOADD = true,
    GETDEL = true, GETEX = true, GETSET = true, HDEL = true, HINCRBY = true, HINCRBYFLOAT = true,
    HMSET = true, HSET = true, HSETNX = true, INCR = true, INCRBY = true, INCRBYFLOAT = true,
    LINSERT = true, LPOP = true, LPUSH = true, LPUSHX = true, LREM = true, LSET = true,
    LTRIM = true, PERSIST = true, PEXPIRE = true, PEXPIREAT = true, PFADD = true, PSETEX = true,
    RPOP = true, RPUSH = true, RPUSHX = true, SADD = true, SET = true, SETBIT = true,
    SETEX = true, SETNX = true, SETRANGE = true, SPOP = true, SREM = true, XACK = true,
    XADD = true, XDEL = true, XTRIM = true, ZADD = true, ZINCRBY = true, ZPOPMAX = true,
    ZPOPMIN = true, ZREM = true, ZREMRANGEBYLEX = true, ZREMRANGEBYRANK = true,
    ZREMRANGEBYSCORE = true,
}

-- Commands whose answer is an integer of 64 bits, and what reads it without rounding.
local EXACT = { INCR = 'GET', INCRBY = 'GET', DECR = 'GET', DECRBY = 'GET', HINCRBY = 'HGET' }

local function quoted(text)
    return '"' .. string.gsub(text, '["\\]', '\\%0') .. '"'
end

-- A refusal that names no tokens. Nothing that has not been checked is repeated in it.
local function refusal(word, code, detail)
    return redis.error_reply(string.format('%s {"code":"%s","detail":%s}', word, code, quoted(detail)))
end

local function invalid(detail)
    return refusal('INVALIDREQUEST', 'invalid_request', detail)
end

-- Both tokens as the decimal digits they came in: formatting a number could round it.
local function beaten(word, code, resource, token, highest)
    return redis.error_reply(string.format(
        '%s {"code":"%s","resource":%s,"token":%s,"highest_token":%s}',
        word, code, quoted(resource), token, highest))
end

-- Bytes that continue a character: how many follow this first byte, and the range of the first of
-- them (Unicode, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF; and no C1).
local function continuation(first)
    if first == 0xC2 then return 1, 0xA0, 0xBF end
    if first >= 0xC3 and first <= 0xDF then return 1, 0x80, 0xBF end
    if first == 0xE0 then return 2, 0xA0, 0xBF end
    if first == 0xED then return 2, 0x80, 0x9F end
    if first >= 0xE1 and first <= 0xEF then return 2, 0x80, 0xBF end
    if first == 0xF0 then return 3, 0x90, 0xBF end
    if first >= 0xF1 and first <= 0xF3 then return 3, 0x80, 0xBF end
    if first == 0xF4 then return 3, 0x80, 0x8F end
end

local function is_text(bytes)
    if string.find(bytes, '[%z\1-\31\127]') then return false end
    local at = string.find(bytes, '[\128-\255]')
    while at do
        local more, low, high = continuation(string.byte(bytes, at))
        if not more then return false end
        for i = 1, more do
            local byte = string.byte(bytes, at + i)
            if not byte or byte < low or byte > high then return false end
            low, high = 0x80, 0xBF
        end
        at = string.find(bytes, '[\128-\255]', at + more + 1)
    end
    return true
end

-- The number that the digits stand for; nil if they are not a token. Leading zeros, signs, spaces,
-- exponents and fractions are no digits, and none of it is guessed at.
local function number(digits)
    if #digits > 16 or not string.find(digits, '^[1-9][0-9]*$') then return nil end
    local value = tonumber(digits)
    return value <= TOKEN_MAX and value or nil
end

local function resource_of(fence)
    return string.match(fence, '^fence:{(.+)}$')
end

-- The words before the token, the token, and where the rest begins.
local function parse(args)
    local asked = { at = 1 }
    while args[asked.at] == 'exclusive' or args[asked.at] == 'shared' or args[asked.at] == 'once' do
        local word = args[asked.at]
        local what = word == 'once' and 'once' or 'mode'
        if asked[what] then return nil, invalid('the words before the token contradict or repeat each other') end
        asked[what] = word
        asked.at = asked.at + 1
    end
    if asked.mode == 'shared' then
        return nil, refusal('SHAREDTOKEN', 'shared_token',
            'the token of a shared grant is for reading: it is never sealed and never guarded')
    end
    asked.token = args[asked.at]
    if asked.token == nil or asked.token == '' then
        return nil, refusal('TOKENREQUIRED', 'token_required', 'a token has to come first')
    end
    asked.number = number(asked.token)
    if not asked.number then
        return nil, invalid('the token is not a whole number from 1 to 9007199254740991 in plain digits')
    end
    asked.at = asked.at + 1
    return asked
end

local function check_keys(keys)
    local fence = keys[1]
    local resource = resource_of(fence)
    if not resource then
        return invalid('the first key is not a fence: that of a resource is fence:{the name of the resource}')
    end
    if #resource > RESOURCE_BYTES_MAX or not is_text(resource) then
        return invalid('the resource is not 1 to 512 bytes of UTF-8 without control characters')
    end
    for i = 2, #keys do
        if keys[i] == fence or string.find(keys[i], '^fence:{.+}$') then
            return invalid('a fence is no data: it rises, and nothing else may happen to it')
        end
    end
end

-- What the fence holds: token and use as numbers and digits. An empty table is a fence that has seen
-- nothing. Whatever else lies under the key is left alone, as it could be somebody's data.
local function read(fence)
    local held = redis.pcall('HMGET', fence, 'token', 'used')
    if held.err then
        if string.find(held.err, 'WRONGTYPE', 1, true) then
            return nil, invalid('the key of the fence holds something that is not a fence')
        end
        return nil, held
    end
    local token, used = held[1], held[2]
    if not token then
        if used or redis.call('EXISTS', fence) == 1 then
            return nil, invalid('the key of the fence holds something that is not a fence')
        end
        return {}
    end
    local seen = { token = number(token), used = used and number(used), digits = token }
    if not seen.token or (used and (not seen.used or seen.used > seen.token)) then
        return nil, invalid('the key of the fence holds something that is not a fence')
    end
    return seen
end

-- The fence must not go by itself, so a time to live that somebody gave it ends here.
local function keep(fence)
    local failed = redis.pcall('PERSIST', fence)
    if type(failed) == 'table' and failed.err then return failed end
end

local function raise(fence, token)
    local failed = redis.pcall('HSET', fence, 'token', token)
    if type(failed) == 'table' and failed.err then return failed end
end

-- Checks everything that can be refused, then lets the fence rise. Answers the request and what the
-- fence held before, or nil and the refusal.
local function admit(keys, args, check_rest)
    local asked, refused = parse(args)
    if not asked then return nil, refused end
    if #args > ARGUMENTS_MAX then return nil, invalid('more than 4096 arguments') end
    refused = check_rest(keys, args, asked) or check_keys(keys)
    if refused then return nil, refused end
    local fence = keys[1]
    local before
    before, refused = read(fence)
    if not before then return nil, refused end
    if before.token and asked.number < before.token then
        return nil, beaten('STALETOKEN', 'stale_token', resource_of(fence), asked.token, before.digits)
    end
    if asked.once and before.used and asked.number <= before.used then
        return nil, beaten('TOKENUSED', 'token_used', resource_of(fence), asked.token, before.digits)
    end
    -- Also for an equal token, and first: what is not permitted has to fail before the fence rises.
    refused = keep(fence)
    if refused then return nil, refused end
    -- `once` writes an equal token again: what is not permitted has to fail before the data changes.
    if asked.once or asked.number ~= before.token then
        refused = raise(fence, asked.token)
        if refused then return nil, refused end
    end
    return asked, before
end

-- One command on the data behind the fence. A command that fails has not used up the token.
local function write(keys, args, check_rest, command)
    local asked, refused = admit(keys, args, check_rest)
    if not asked then return refused end
    local answer = command(keys, args, asked)
    if asked.once and not (type(answer) == 'table' and answer.err) then
        redis.call('HSET', keys[1], 'used', asked.token)
    end
    return answer
end

local function seal(keys, args)
    local asked, before = admit(keys, args, function(_, _, request)
        if #keys ~= 1 then return invalid('seal takes one key: the fence') end
        if request.once then return invalid('a seal is no use of the token, so it takes no once') end
        if #args >= request.at then return invalid('nothing comes after the token of a seal') end
    end)
    if not asked then return before end
    return before.token or false
end

local function set(keys, args)
    return write(keys, args, function(_, _, request)
        if #keys ~= 2 then return invalid('set takes two keys: the fence and the data') end
        if #args < request.at then return invalid('a value comes after the token of a set') end
    end, function(_, _, request)
        return redis.pcall('SET', keys[2], unpack(args, request.at))
    end)
end

local function hset(keys, args)
    return write(keys, args, function(_, _, request)
        if #keys ~= 2 then return invalid('hset takes two keys: the fence and the data') end
        local rest = #args - request.at + 1
        if rest < 2 or rest % 2 ~= 0 then return invalid('pairs of field and value come after the token of an hset') end
    end, function(_, _, request)
        return redis.pcall('HSET', keys[2], unpack(args, request.at))
    end)
end

local function del(keys, args)
    return write(keys, args, function(_, _, request)
        if #keys < 2 then return invalid('del takes the fence and at least one key of data') end
        if #keys > ARGUMENTS_MAX then return invalid('more than 4096 keys') end
        if #args >= request.at then return invalid('nothing comes after the token of a del') end
    end, function()
        return redis.pcall('DEL', unpack(keys, 2))
    end)
end

local function run(key, name, args, at)
    local answer = redis.pcall(name, key, unpack(args, at))
    local reader = EXACT[name]
    if reader and type(answer) == 'number' and math.abs(answer) > TOKEN_MAX then
        return reader == 'GET' and redis.call('GET', key) or redis.call('HGET', key, args[at])
    end
    return answer
end

local function call(keys, args)
    return write(keys, args, function(_, _, request)
        if #keys ~= 2 then return invalid('call takes two keys: the fence and the data') end
        if #args < request.at then return invalid('a command comes after the token of a call') end
        if not COMMANDS[string.upper(args[request.at])] then
            return invalid('the command is not one of those with a single key that may be called')
        end
    end, function(_, _, request)
        return run(keys[2], string.upper(args[request.at]), args, request.at + 1)
    end)
end

local function highest(keys, args)
    if #keys ~= 1 or #args ~= 0 then return invalid('highest takes one key, the fence, and no argument') end
    local refused = check_keys(keys)
    if refused then return refused end
    local before
    before, refused = read(keys[1])
    if not before then return refused end
    return before.token or false
end

local function version(keys, args)
    if #keys ~= 0 or #args ~= 0 then return invalid('version takes no key and no argument') end
    return VERSION
end

redis.register_function{ function_name = 'leasehold_seal', callback = seal,
    description = 'Records a token before its holder reads, and answers the highest there was' }
redis.register_function{ function_name = 'leasehold_set', callback = set,
    description = 'SET, unless the token is stale' }
redis.register_function{ function_name = 'leasehold_hset', callback = hset,
    description = 'HSET, unless the token is stale' }
-- What makes room must be possible when there is none.
redis.register_function{ function_name = 'leasehold_del', callback = del, flags = { 'allow-oom' },
    description = 'DEL, unless the token is stale' }
redis.register_function{ function_name = 'leasehold_call', callback = call,
    description = 'A command with one key, unless the token is stale' }
redis.register_function{ function_name = 'leasehold_highest', callback = highest, flags = { 'no-writes' },
    description = 'The highest token that the fence has seen' }
redis.register_function{ function_name = 'leasehold_version', callback = version,
    flags = { 'no-writes', 'allow-stale' },
    description = 'The version of this library' }
