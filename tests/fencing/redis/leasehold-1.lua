#!lua name=leasehold

-- Version 1, frozen: what an upgrade starts from.

local function seal(keys, args)
    local before = redis.call('HGET', keys[1], 'token')
    if before and tonumber(args[1]) < tonumber(before) then
        return redis.error_reply(string.format(
            'STALETOKEN {"code":"stale_token","resource":"%s","token":%s,"highest_token":%s}',
            keys[1], args[1], before))
    end
    redis.call('HSET', keys[1], 'token', args[1])
    return before and tonumber(before) or false
end

local function set(keys, args)
    local refused = seal(keys, args)
    if type(refused) == 'table' then return refused end
    return redis.call('SET', keys[2], args[2])
end

redis.register_function('leasehold_seal', seal)
redis.register_function('leasehold_set', set)
redis.register_function{ function_name = 'leasehold_version', callback = function() return 1 end,
    flags = { 'no-writes' } }
