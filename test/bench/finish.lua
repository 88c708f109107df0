-- finish.lua: keep an operation's end, if it is still the owner's.
--   KEYS[1]  the operation
--   ARGV     owner, DONE or FAILED, result or reason, seconds to keep it
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then
	return 'NOT_OWNER'
end
redis.call('HSET', KEYS[1], 'state', ARGV[2], 'result', ARGV[3])
redis.call('EXPIRE', KEYS[1], ARGV[4])
return 'OK'
