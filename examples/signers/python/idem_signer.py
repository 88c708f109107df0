"""Sign idem's fingerprints outside the database.

    token = sign(secret, "alice", "charge", '{"amount": 199.90, "payee": "acct_42"}',
                 material=["/amount", "/payee"])

The token is what idem_sign() makes in SQL, and idem_acquire() takes it, where the secret is one that the database
has (idem_import_secret, idem_export_secret) and the lists are those of the scope in idem_policy. README.md beside
this folder says more. Standard library only, Python 3.8 or later.

Parameters are JSON text (str, or bytes of UTF-8), or a document: dict, list, str, int, Decimal, bool, None. Text is
read exactly, as jsonb would read it: of duplicate members the last counts, and what jsonb refuses raises
ValueError. A float is refused: it may have lost digits already.
"""
import base64
import hashlib
import hmac
import json
import re
import secrets as random
import time
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

__all__ = ["Fingerprint", "NothingMaterial", "canonical", "direct_key", "list_version", "param_hash", "parse",
           "sign", "step_key", "uuid7", "verify"]

Pointers = Optional[Sequence[str]]  # RFC 6901, "*" for every element of an array; None: no list
Bytes = Union[bytes, bytearray, memoryview]

TOKEN_MAX = 4096  # bytes
EXPIRY_MAX = 253402300799  # 9999-12-31T23:59:59Z
SCALE_MAX = 16383  # decimals of a jsonb number
LEAD_MAX = 131071  # its first digit stands for 10 to this power at most
EXPONENT_MAX = 2**30 - 2  # as written


class NothingMaterial(ValueError):
    """Nothing of the parameters is material: a fingerprint would bind nothing."""


# Canonical JSON

def parse(text: Union[str, Bytes]) -> Any:
    """The document of a JSON text, with every number a Decimal. Raises ValueError for what jsonb would refuse."""
    if not isinstance(text, str):
        text = bytes(text).decode()
    return _decode(text, _object, Decimal)


def canonical(params: Any, material: Pointers = None, immaterial: Pointers = None) -> str:
    """The canonical JSON of the parameters' material part: what idem_canonical() returns.

    Without lists all of it. Raises NothingMaterial where there is a list and nothing is left, TypeError and
    ValueError for what is no JSON.
    """
    root = _tree(material, immaterial)
    document = parse(params) if isinstance(params, (str, bytes, bytearray, memoryview)) else params
    if root is not None and not isinstance(document, (dict, list, tuple)):
        raise NothingMaterial("a scalar has no members to select")
    try:
        text = _write(document, [root] if root else [], material is None)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if root is not None and text in (None, "{}", "[]"):
        raise NothingMaterial("nothing of the parameters is material")
    return text


def param_hash(params: Any, material: Pointers = None, immaterial: Pointers = None) -> bytes:
    """SHA-256 of the canonical JSON: what idem_param_hash() returns."""
    return hashlib.sha256(canonical(params, material, immaterial).encode()).digest()


def list_version(material: Pointers = None, immaterial: Pointers = None) -> int:
    """The version of two lists, which a fingerprint carries; 0 without any."""
    _tree(material, immaterial)
    lists = {"immaterial": immaterial, "material": material}
    if material is None and immaterial is None:
        return 0
    text = canonical({name: sorted(set(of), key=str.encode) for name, of in lists.items() if of is not None})
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") & 0x7FFFFFFF or 1


def _decode(text: str, pairs_hook, integer_hook) -> Any:
    def number(digits: str) -> Decimal:
        exponent = digits.lower().partition("e")[2].lstrip("+-0")
        if len(exponent) > 10 or int(exponent or 0) > EXPONENT_MAX:
            raise ValueError("a number is out of range")
        return _checked(Decimal(digits))

    def constant(name: str):
        raise ValueError(f"{name} is no JSON")

    def integer(digits: str):
        return number(digits) if integer_hook is Decimal else integer_hook(digits)

    try:
        document = json.loads(text, object_pairs_hook=pairs_hook, parse_float=number, parse_int=integer,
                              parse_constant=constant)
        _check_strings(document)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return document


def _object(pairs: list) -> dict:
    # members that a later one replaces must be sound as well
    for name, value in pairs:
        _check_string(name)
        _check_strings(value)
    return dict(pairs)


def _check_strings(value: Any) -> None:
    if isinstance(value, str):
        _check_string(value)
    elif isinstance(value, list):
        for element in value:
            _check_strings(element)


def _check_string(text: str) -> str:
    if "\0" in text:
        raise ValueError("a string holds U+0000, which PostgreSQL cannot store")
    text.encode()  # a lone surrogate raises UnicodeEncodeError, which is a ValueError
    return text


def _checked(number: Decimal) -> Decimal:
    if not number.is_finite() or number.as_tuple().exponent < -SCALE_MAX or (number and number.adjusted() > LEAD_MAX):
        raise ValueError("a number is out of range")
    return number


class _Node:
    """One token of the pointers that begin alike, and what follows it."""

    def __init__(self) -> None:
        self.children: Dict[str, "_Node"] = {}
        self.material = False
        self.immaterial = False


def _tree(material: Pointers, immaterial: Pointers) -> Optional[_Node]:
    if material is None and immaterial is None:
        return None
    root = _Node()
    for kind, pointers in (("material", material), ("immaterial", immaterial)):
        if pointers is None:
            continue
        if isinstance(pointers, str) or not 1 <= len(pointers) <= 1000:
            raise ValueError(f"{kind} must be None or a list of 1 to 1000 pointers")
        for pointer in pointers:
            setattr(_plant(root, pointer), kind, True)
    if root.immaterial:
        raise ValueError("the parameters cannot be immaterial as a whole")
    return root


def _plant(node: _Node, pointer: str) -> _Node:
    if not re.fullmatch(r"(/([^/~]|~[01])*)*", pointer, re.DOTALL) or len(_check_string(pointer).encode()) > 1024:
        raise ValueError("a list holds a string that is no JSON Pointer of at most 1024 bytes")
    for token in pointer.split("/")[1:]:
        node = node.children.setdefault(token.replace("~1", "/").replace("~0", "~"), _Node())
    return node


def _follow(nodes: List[_Node], *tokens: str) -> List[_Node]:
    return [node.children[token] for node in nodes for token in tokens if token in node.children]


def _write(value: Any, nodes: List[_Node], selected: bool) -> Optional[str]:
    """A value's canonical JSON, or None where nothing of it is material.

    nodes are where the pointers have come to on the way here; selected says that a pointer above was material.
    """
    for node in nodes:
        if node.immaterial:
            return None
        selected = selected or node.material
    if not selected and not nodes:
        return None
    if isinstance(value, dict):
        members = []
        for name in sorted(value, key=_utf16):
            if value[name] is not None:  # null and absent are one and the same
                text = _write(value[name], _follow(nodes, name), selected)
                if text is not None:
                    members.append(f"{_string(name)}:{text}")
        return "{" + ",".join(members) + "}" if members or selected else None
    if isinstance(value, (list, tuple)):
        elements = []
        found = selected
        for index, element in enumerate(value):
            text = _write(element, _follow(nodes, str(index), "*"), selected)
            found = found or text is not None
            elements.append("null" if text is None else text)  # so that places and their number stay bound
        return "[" + ",".join(elements) + "]" if found else None
    return _scalar(value) if selected else None


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, (int, Decimal)):
        return _number(_checked(Decimal(value)))
    raise TypeError(f"a {type(value).__name__} is no exact JSON value")


def _utf16(name: str) -> bytes:
    if not isinstance(name, str):
        raise TypeError("the names of members must be strings")
    return name.encode("utf-16-be")


def _string(text: str) -> str:
    return json.dumps(_check_string(text), ensure_ascii=False)


def _number(number: Decimal) -> str:
    """All digits of a number, as ECMAScript's Number-to-string would lay them out."""
    if not number:
        return "0"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    lead = number.adjusted()
    sign = "-" if number < 0 else ""
    if lead < -6 or lead > 20:
        return f"{sign}{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{lead:+d}"
    if lead < 0:
        return f"{sign}0.{'0' * (-lead - 1)}{digits}"
    whole, fraction = digits[: lead + 1].ljust(lead + 1, "0"), digits[lead + 1 :]
    return f"{sign}{whole}{'.' if fraction else ''}{fraction}"


# Keys

def uuid7(milliseconds: Optional[int] = None) -> uuid.UUID:
    """A fresh UUID of version 7 (RFC 9562): the time in Unix milliseconds, the rest random."""
    if milliseconds is None:
        milliseconds = time.time_ns() // 1_000_000
    return _stamp(milliseconds.to_bytes(6, "big") + random.token_bytes(10), 7)


def direct_key(subject: str, scope: str, params: Any, client_key: Optional[str] = None, *,
               material: Pointers = None, immaterial: Pointers = None) -> uuid.UUID:
    """The key of a direct call, by the client's key or else by the parameters: what idem_key() returns."""
    if client_key is None:
        door, content = b"content", canonical(params, material, immaterial).encode()
    else:
        door, content = b"client", _label(client_key, "client_key")
    return _name(b"idem:key:1", door, _label(scope, "scope"), _label(subject, "subject"), content)


def step_key(key: Union[uuid.UUID, str], step: str) -> uuid.UUID:
    """The key for one downstream step of an operation: what idem_downstream_key() returns."""
    return _name(b"idem:step:1", uuid.UUID(str(key)).bytes, _label(step, "step"))


def _name(*parts: bytes) -> uuid.UUID:
    digest = hashlib.sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts))
    return _stamp(digest.digest()[:16], 8)


def _stamp(octets: bytes, version: int) -> uuid.UUID:
    octets = bytearray(octets)
    octets[6] = octets[6] & 0x0F | version << 4
    octets[8] = octets[8] & 0x3F | 0x80
    return uuid.UUID(bytes=bytes(octets))


def _label(text: str, name: str) -> bytes:
    octets = _check_string(text).encode()
    if not 1 <= len(octets) <= 255:
        raise ValueError(f"{name} must have 1 to 255 bytes")
    return octets


# Fingerprints

@dataclass(frozen=True)
class Fingerprint:
    """What a fingerprint says."""

    key: uuid.UUID
    exp: int  # Unix seconds; it is past where exp <= time.time()
    subject: str
    scope: str
    param_hash: bytes
    version: int = 0
    confirmed_repeat: bool = False


def sign(secret: Bytes, subject: str, scope: str, params: Any, *, ttl: float = 900, exp: Optional[int] = None,
         material: Pointers = None, immaterial: Pointers = None, confirm_repeat: bool = False,
         key: Union[uuid.UUID, str, None] = None) -> str:
    """A fingerprint for one operation, good for ttl seconds, or until exp, a time in whole Unix seconds.

    secret has 32 to 64 bytes. confirm_repeat says that a person has confirmed a likely repeat. The key is a fresh
    one; tests may bring their own. Never log or print the secret.
    """
    if exp is None:
        exp = int(time.time() + ttl)
        if exp <= time.time():
            raise ValueError("the fingerprint would already be expired")
    if not 0 < exp <= EXPIRY_MAX or exp != int(exp):
        raise ValueError("exp must be whole Unix seconds, before the year 10000")
    key = str(key or uuid7())
    if not _is_v7(key):
        raise ValueError("key must be a UUID of version 7 in lower case")
    _label(subject, "subject")
    _label(scope, "scope")
    version = list_version(material, immaterial)
    payload = (f'{{"n":"{key}","exp":{int(exp)},"u":{_string(subject)},"s":{_string(scope)}'
               f',"p":"{_b64(param_hash(params, material, immaterial))}"')
    payload += f',"v":{version}' if version else ""
    payload += ',"r":true}' if confirm_repeat else "}"
    text = _b64(payload.encode())
    token = f"{text}.{_b64(_mac(secret, text))}"
    if len(token) > TOKEN_MAX:
        raise ValueError("the fingerprint would be too long: use a shorter subject and scope")
    return token


def verify(secrets: Iterable[Bytes], token: str) -> Optional[Fingerprint]:
    """What a fingerprint says, where one of the secrets has signed it; None otherwise.

    As idem_inspect() in SQL: whether its time is past is for the caller to see, and what a model adds at the ends
    when it copies a token is forgiven.
    """
    if len(token) > TOKEN_MAX:
        return None
    forgiven = " \t\n\v\f\r\"'`"
    token = token.strip(forgiven)
    if token.endswith("."):
        token = token[:-1].rstrip(forgiven)
    text, dot, mac = token[:-44], token[-44:-43], _unb64(token[-43:])
    if not text or dot != "." or mac is None or not text.isascii():
        return None
    genuine = False
    for secret in secrets:
        genuine |= hmac.compare_digest(_mac(secret, text), mac)
    payload = _unb64(text)
    if not genuine or payload is None:
        return None
    try:
        return _read(payload.decode())
    except ValueError:
        return None


def _read(payload: str) -> Fingerprint:
    members = _decode(payload, _distinct, _natural)
    required = {"n", "exp", "u", "s", "p"}
    if not isinstance(members, dict) or not required <= members.keys() <= required | {"v", "r"}:
        raise ValueError("these are not a fingerprint's members")
    version, repeat, p = members.get("v", 0), members.get("r", True), members["p"]
    digest = _unb64(p) if isinstance(p, str) and len(p) == 43 else None
    if not (_is_v7(members["n"]) and isinstance(members["u"], str) and isinstance(members["s"], str)
            and type(members["exp"]) is int and 0 < members["exp"] <= EXPIRY_MAX
            and type(version) is int and version < 2**31 and repeat is True and digest is not None):
        raise ValueError("a member has the wrong type or range")
    _label(members["u"], "u")
    _label(members["s"], "s")
    return Fingerprint(uuid.UUID(members["n"]), members["exp"], members["u"], members["s"], digest, version,
                       "r" in members)


def _distinct(pairs: list) -> dict:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a member stands twice")
    return _object(pairs)


def _natural(digits: str) -> int:
    if digits.startswith("-"):
        raise ValueError("a number has a sign")
    return int(digits)


def _is_v7(text: Any) -> bool:
    return isinstance(text, str) and re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", text) is not None


def _mac(secret: Bytes, text: str) -> bytes:
    if not 32 <= len(secret) <= 64:
        raise ValueError("a secret has 32 to 64 bytes")
    return hmac.new(bytes(secret), text.encode(), "sha256").digest()


def _b64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).decode().rstrip("=")


def _unb64(text: str) -> Optional[bytes]:
    """The bytes that have this spelling and no other, or None."""
    if not re.fullmatch(r"[A-Za-z0-9_-]*", text) or len(text) % 4 == 1:
        return None
    octets = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return octets if _b64(octets) == text else None
