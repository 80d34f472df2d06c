"""What Tryton does with its database: ``python tryton_work.py STAGE``, in its own environment.

The client library (proteus) makes parties, sales, shipments, invoices, purchases and receipts.
"""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import sys
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg2
from operations import Operations, run_stage
from trytond.config import config

_MODULES = "account_invoice_stock account_product purchase sale"
"""Modules to activate; each brings those that it depends on."""

_ROUNDS = 4
_URI = f"postgresql://{os.environ['PGUSER']}@{os.environ['PGHOST']}:{os.environ['PGPORT']}/"
config.set("database", "uri", _URI)


def base(_: Operations) -> None:
    admin("-u", "ir", *_MODULES.split(), "--activate-dependencies")
    work_of_setup()


def admin(*arguments: str) -> None:
    """Run Tryton's own program for its tables."""
    with tempfile.TemporaryDirectory() as directory:
        file, password = Path(directory, "trytond.conf"), Path(directory, "password")
        file.write_text(f"[database]\nuri = {_URI}\n")
        password.write_text("a password of eventlog's tests\n")
        command = [str(Path(sys.executable).with_name("trytond-admin")), "-c", str(file), "-d"]
        subprocess.run(
            [*command, os.environ["PGDATABASE"], "--email", "admin@example.org", *arguments],
            env={**os.environ, "TRYTONPASSFILE": str(password)},
            check=True,
        )


def connect() -> Any:
    from proteus import config as client

    return client.set_trytond(database=_URI + os.environ["PGDATABASE"])


def work_of_setup() -> None:
    """A company with accounts, a fiscal year, products and a stock."""
    from proteus import Model
    from trytond.modules.account.tests.tools import (
        create_chart,
        create_fiscalyear,
        create_tax,
        get_accounts,
    )
    from trytond.modules.account_invoice.tests.tools import (
        create_payment_term,
        set_fiscalyear_invoice_sequences,
    )
    from trytond.modules.company.tests.tools import create_company, get_company

    session = connect()
    create_company()
    company = get_company()
    employed = Model.get("party.party")(name="Employee")
    employed.save()
    employee = Model.get("company.employee")(party=employed)
    employee.save()
    user = Model.get("res.user")(session.user)
    user.employees.append(employee)
    user.employee = employee
    user.save()
    session._context = type(user).get_preferences(True, {})
    year = set_fiscalyear_invoice_sequences(create_fiscalyear(company))
    year.click("create_period")
    create_chart(company)
    accounts = get_accounts(company)
    tax = create_tax(Decimal(".10"))
    tax.save()
    category = Model.get("product.category")(name="Category", accounting=True)
    category.account_expense = accounts["expense"]
    category.account_revenue = accounts["revenue"]
    category.customer_taxes.append(tax)
    category.save()
    (unit,) = Model.get("product.uom").find([("name", "=", "Unit")])
    (storage,) = Model.get("stock.location").find([("code", "=", "STO")])
    inventory = Model.get("stock.inventory")(location=storage)
    for number in range(4):
        template = Model.get("product.template")(
            name=f'{number} — ‹"quoted" \\ back\'slash›\U0001f600'
        )
        template.default_uom, template.type = unit, "goods"
        template.salable = template.purchasable = True
        template.list_price = Decimal("10.1234") * (number + 1)
        template.account_category = category
        template.save()
        (product,) = template.products
        product.cost_price = Decimal("0.0001") + number
        product.save()
        line = inventory.lines.new(product=product)
        line.quantity, line.expected_quantity = 1e6, 0.0
    inventory.click("confirm")
    create_payment_term().save()


def work(operations: Operations) -> None:
    session = connect()
    from proteus import Model

    session._context = Model.get("res.user").get_preferences(True, {})
    shop = Shop()
    for number in range(_ROUNDS):
        party = operations.run(shop.new_party, number)
        sale = operations.run(shop.new_sale, party, 3)
        operations.run(shop.confirm, sale)
        operations.run(shop.ship, sale)
        operations.run(shop.post_invoices, sale)
        purchase = operations.run(shop.new_purchase, party)
        operations.run(shop.receive, purchase)
        operations.run(shop.post_invoices, purchase)
        operations.run(shop.duplicate, sale)
        operations.run(shop.delete_draft, party)
        operations.run(shop.attach, party, number)
        operations.run(shop.change, party, number)
        operations.run(shop.delete_party, number)


class Shop:
    """What a user does."""

    def __init__(self) -> None:
        from proteus import Model

        self.get = Model.get
        self.random = random.Random(7)
        self.products = self.get("product.product").find([])
        (self.term, *_) = self.get("account.invoice.payment_term").find([])

    def new_party(self, number: int) -> Any:
        party = self.get("party.party")(name=f"Kunde {number} 'Ünï' \\n {'x' * number}")
        address = party.addresses[0] if party.addresses else party.addresses.new()
        address.street, address.city = (
            f'Line 1\nLine 2 {number}\r\n"q"',
            "" if number % 3 else "Київ",
        )
        party.save()
        mail = party.contact_mechanisms.new()
        mail.type, mail.value = "email", f"a{number}@example.org"
        party.save()
        return party

    def new_sale(self, party: Any, lines: int) -> Any:
        sale = self.get("sale.sale")(party=party, payment_term=self.term, invoice_method="order")
        for _ in range(lines):
            line = sale.lines.new()
            line.product = self.random.choice(self.products)
            line.quantity = float(self.random.randint(1, 9))
            line.unit_price = Decimal(self.random.randint(1, 10**6)) / Decimal(10**4)
        comment = sale.lines.new()
        comment.type, comment.description = "comment", "Comment é"
        sale.save()
        return sale

    def confirm(self, order: Any) -> None:
        order.click("quote")
        order.click("confirm")

    def ship(self, sale: Any) -> None:
        (last,) = ("done",) if _has(self.get("stock.shipment.out"), "done") else ("do",)
        for shipment in sale.shipments:
            for button in ("assign_force", "pick", "pack", last):
                shipment.click(button)

    def post_invoices(self, order: Any) -> None:
        order.reload()
        for invoice in order.invoices:
            invoice.invoice_date = datetime.date.today()
            invoice.click("post")

    def new_purchase(self, party: Any) -> Any:
        purchase = self.get("purchase.purchase")(party=party, payment_term=self.term)
        purchase.invoice_method, purchase.invoice_address = "order", party.addresses[0]
        for _ in range(3):
            line = purchase.lines.new()
            line.product = self.random.choice(self.products)
            line.quantity, line.unit_price = float(self.random.randint(1, 9)), Decimal("3.1415")
        self.confirm(purchase)
        return purchase

    def receive(self, purchase: Any) -> None:
        shipment = self.get("stock.shipment.in")(supplier=purchase.party)
        for move in purchase.moves:
            shipment.incoming_moves.append(self.get("stock.move")(id=move.id))
        shipment.save()
        shipment.click("receive")
        shipment.click("done" if _has(type(shipment), "done") else "do")

    def duplicate(self, sale: Any) -> None:
        type(sale).duplicate([sale])

    def delete_draft(self, party: Any) -> None:
        sale = self.new_sale(party, 2)
        sale.click("cancel")
        sale.delete()

    def attach(self, party: Any, number: int) -> None:
        attachment = self.get("ir.attachment")(resource=party, name=f"file {number}")
        attachment.data = self.random.randbytes(3000)
        attachment.save()
        note = self.get("ir.note")(resource=party, message="nota\n\x7f \u2028 " + "y" * 5000)
        note.save()
        if number % 2:
            attachment.delete()
            note.message = ""
            note.save()

    def change(self, party: Any, number: int) -> None:
        for active in (False, True):
            party.name, party.active = f"{party.name} 2", active
            party.save()
        template = self.products[number % len(self.products)].template
        template.list_price = Decimal(number) + Decimal("0.5000")
        template.save()

    def delete_party(self, number: int) -> None:
        self.new_party(10000 + number).delete()


def _has(model: Any, button: str) -> bool:
    """Return whether this series of Tryton names the button so."""
    from trytond.pool import Pool

    return hasattr(Pool(os.environ["PGDATABASE"]).get(model.__name__), button)


def migrate(operations: Operations) -> None:
    """To the series of this environment. What it prepares needs an answer by hand to one column."""
    operations.run(prepare)
    operations.run(update_all)


def prepare() -> None:
    with psycopg2.connect("") as session, session.cursor() as cursor:
        cursor.execute("UPDATE ir_action_wizard SET model = NULL WHERE model = ''")


def update_all() -> None:
    admin("--all")


run_stage({"base": base, "work": work, "migrate": migrate})
