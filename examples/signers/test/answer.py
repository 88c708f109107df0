"""Answer requests, one JSON object a line, with one line each: how test/suites/signers asks the signer in Python."""
import json
import pathlib
import sys
from decimal import Decimal

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))
import idem_signer as signer


def answer(ask: dict) -> str:
    lists = {name: ask.get(name) for name in ("material", "immaterial")}
    op = ask["op"]
    if op == "canonical":
        text = signer.canonical(ask["params"], **lists)
        key = signer.direct_key(ask["subject"], ask["scope"], ask["params"], **lists)
        return f'{text.encode().hex()} {signer.param_hash(ask["params"], **lists).hex()} {key}'
    if op == "document":
        return signer.canonical(ask["params"], **lists)
    if op == "inexact":
        return signer.canonical({"amount": 0.1})
    if op == "version":
        return str(signer.list_version(**lists))
    if op == "sign":
        options = {name: ask[name] for name in ("exp", "ttl", "key", "confirm_repeat") if name in ask}
        secret = bytes.fromhex(ask["secret"])
        return signer.sign(secret, ask["subject"], ask["scope"], ask["params"], **lists, **options)
    if op == "verify":
        said = signer.verify(map(bytes.fromhex, ask["secrets"]), ask["token"])
        return "invalid" if said is None else " ".join((
            str(said.key), str(said.exp), said.subject.encode().hex(), said.scope.encode().hex(),
            said.param_hash.hex(), str(said.version), str(said.confirmed_repeat).lower()))
    if op == "key":
        return str(signer.direct_key(ask["subject"], ask["scope"], ask["params"], ask["client_key"], **lists))
    if op == "step":
        return str(signer.step_key(ask["key"], ask["step"]))
    raise KeyError(op)


def main() -> None:
    for line in sys.stdin.buffer:
        ask = json.loads(line, parse_float=Decimal)
        try:
            print(answer(ask))
        except signer.NothingMaterial:
            print("immaterial")
        except (ValueError, TypeError):
            print("refused")


main()
