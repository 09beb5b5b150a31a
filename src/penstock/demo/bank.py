"""The bank: accounts and transfers, made from a seed. Money only moves: the balances have one total at every moment."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.demo.changefeed import Event
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Mapping

DDL = {
    "accounts": """\
CREATE TABLE public.accounts (
	id INT8 NOT NULL,
	owner STRING NOT NULL,
	balance DECIMAL(12,2) NOT NULL,
	opened TIMESTAMPTZ NOT NULL,
	CONSTRAINT accounts_pkey PRIMARY KEY (id ASC)
);
""",
    "transfers": """\
CREATE TABLE public.transfers (
	id UUID NOT NULL,
	from_account INT8 NOT NULL,
	to_account INT8 NOT NULL,
	amount DECIMAL(12,2) NOT NULL,
	at TIMESTAMPTZ NOT NULL,
	CONSTRAINT transfers_pkey PRIMARY KEY (id ASC)
);
""",
}
#: All the money there is; it never changes.
TOTAL = Decimal("1000000.00")
#: The bank's own account: opening and closing an account moves money from and to it.
HOUSE = 0

_OPENED = datetime(2026, 2, 2, 9, 0, tzinfo=timezone.utc)
_BEGIN = Hlc(1_770_076_680_000_000_000)  # 2026-02-02 23:58:00 UTC: the feed's files go over midnight
_OWNERS = ("Ada", "Bjørn", "Chloé", "D'Arcy", 'Eve "the eavesdropper"', "Faythe", "Grace", "Ḥasan", "Ines", "李雷")
_CENT = Decimal("0.01")

Tables = dict[str, dict[tuple[object, ...], Event]]


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that happened at one HLC, over both tables."""

    at: Hlc
    kind: str
    events: tuple[Event, ...]


@dataclass(frozen=True, slots=True)
class Bank:
    """The bank's own record: its transactions in the order of their HLC, the first of them the feed's initial scan."""

    transactions: tuple[Transaction, ...]

    def tables_at(self, position: Hlc) -> Tables:
        """Replay the record: the event that made each row that is there at `position` (inclusive), by table and key."""
        tables: Tables = {table: {} for table in DDL}
        for transaction in self.transactions:
            if transaction.at <= position:
                for event in transaction.events:
                    tables[event.table].pop(event.key, None)
                    if event.row is not None:
                        tables[event.table][event.key] = event
        return tables


def total(accounts: Mapping[tuple[object, ...], Event]) -> Decimal:
    """Return the sum of all balances."""
    balances = [event.row["balance"] for event in accounts.values() if event.row is not None]
    return sum((balance for balance in balances if isinstance(balance, Decimal)), Decimal("0.00"))


def open_bank(seed: int, *, accounts: int = 200, transactions: int = 1000) -> Bank:
    """Return the bank of this seed: the same seed gives the same record, on every machine.

    Args:
        seed: Any number.
        accounts: How many accounts there are at first.
        transactions: How many transactions follow: transfers, and now and then an account that is closed or opened
            (again, where one was closed).
    """
    teller = _Teller(Random(seed), accounts)
    return Bank((teller.scan(), *(teller.transact() for _ in range(transactions))))


class _Teller:
    """Keeps the balances while the record is made."""

    def __init__(self, random: Random, accounts: int) -> None:
        self.random = random
        self.now = _BEGIN
        self.opened = {number: _OPENED + timedelta(minutes=number) for number in range(accounts + 1)}
        self.balance = {number: self._amount(Decimal(4000)) for number in range(1, accounts + 1)}
        self.balance[HOUSE] = TOTAL - sum(self.balance.values())
        self.closed: list[int] = []

    def scan(self) -> Transaction:
        return Transaction(self.now, "scan", tuple(self._account(number) for number in sorted(self.balance)))

    def transact(self) -> Transaction:
        self._tick()
        kind = self.random.choice(["transfer"] * 8 + ["close", "open"])
        return {"transfer": self._transfer, "close": self._close, "open": self._open}[kind]()

    def _transfer(self) -> Transaction:
        giver, taker = self.random.sample([number for number in sorted(self.balance) if number != HOUSE], 2)
        moved = self._move(giver, taker, min(self.balance[giver], self._amount(Decimal(500))))
        return Transaction(self.now, "transfer", (moved, self._account(giver), self._account(taker)))

    def _close(self) -> Transaction:
        number = self.random.choice([number for number in sorted(self.balance) if number != HOUSE])
        moved = self._move(number, HOUSE, self.balance[number])
        del self.balance[number]
        self.closed.append(number)
        gone = Event("accounts", (number,), self.now, None)
        return Transaction(self.now, "close", (moved, gone, self._account(HOUSE)))

    def _open(self) -> Transaction:
        again = bool(self.closed) and self.random.random() < 0.4
        number = self.closed.pop(self.random.randrange(len(self.closed))) if again else len(self.opened)
        self.opened[number] = self.now.instant
        self.balance[number] = Decimal("0.00")
        moved = self._move(HOUSE, number, self._amount(Decimal(4000)))
        return Transaction(self.now, "open", (moved, self._account(HOUSE), self._account(number)))

    def _move(self, giver: int, taker: int, amount: Decimal) -> Event:
        self.balance[giver] -= amount
        self.balance[taker] += amount
        number = UUID(int=self.random.getrandbits(128), version=4)
        row = {"id": number, "from_account": giver, "to_account": taker, "amount": amount, "at": self.now.instant}
        return Event("transfers", (number,), self.now, row)

    def _account(self, number: int) -> Event:
        owner = "the house" if number == HOUSE else f"{_OWNERS[number % len(_OWNERS)]} {number}"
        row = {"id": number, "owner": owner, "balance": self.balance[number], "opened": self.opened[number]}
        return Event("accounts", (number,), self.now, row)

    def _amount(self, most: Decimal) -> Decimal:
        return _CENT * self.random.randrange(1, int(most / _CENT))

    def _tick(self) -> None:
        """Move on: mostly by up to half a second, now and then only in the logical part."""
        if self.random.random() < 0.1:
            self.now = self.now.next()
        else:
            self.now = Hlc(self.now.wall + self.random.randrange(1, 500_000_000))
