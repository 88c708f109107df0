-- claim.lua: take an operation, or say what became of it.
--   KEYS[1]  the operation
--   ARGV     hash of the parameters, owner, lease in seconds
-- Gives a state, and the result or reason of a finished operation.
local kept = redis.call('HMGET', KEYS[1], 'state', 'hash', 'result')
local state = kept[1]
if not state then
	redis.call('HSET', KEYS[1], 'state', 'IN_FLIGHT', 'hash', ARGV[1], 'owner', ARGV[2])
	redis.call('EXPIRE', KEYS[1], ARGV[3])
	return {'ACQUIRED'}
elseif kept[2] ~= ARGV[1] then
	return {'PARAM_MISMATCH'}
elseif state == 'IN_FLIGHT' then
	return {state}
end
return {state, kept[3]}
