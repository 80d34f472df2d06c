"""What Wagtail does with its database: ``python wagtail_work.py STAGE``, in its own environment.

The package index lacks Wagtail's demo. The package has the applications, models, migrations and
fixtures of Wagtail's own tests, which are used here: 274 tables.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from operations import Operations, run_stage

os.environ |= {
    "DJANGO_SETTINGS_MODULE": "wagtail.test.settings",
    "DATABASE_ENGINE": "django.db.backends.postgresql",
    "DATABASE_NAME": os.environ["PGDATABASE"],
    "DATABASE_USER": os.environ["PGUSER"],
    "DATABASE_HOST": os.environ["PGHOST"],
    "DATABASE_PORT": os.environ["PGPORT"],
}

import django

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.db.models import F, Value  # noqa: E402
from django.db.models.functions import Concat  # noqa: E402
from wagtail.models import Collection, Page, Site  # noqa: E402
from wagtail.test.testapp.models import (  # noqa: E402
    Advert,
    EventPage,
    EventPageChooserModel,
    FeatureCompleteToy,
    PageChooserModel,
    SimplePage,
)

_EARLIER = (("tests", "0052"), ("wagtailcore", "0096"), ("wagtailsearchpromotions", "zero"))
"""The migrations that are undone: they drop and create tables, columns and indexes."""


def base(_: Operations) -> None:
    """The tables of all applications, and the fixtures."""
    call_command("migrate", verbosity=0, skip_checks=True)
    call_command("createcachetable")
    call_command("loaddata", "test.json", verbosity=0)


def work(operations: Operations) -> None:
    for operation in (
        publish_revisions,
        copy_move_and_delete_pages,
        change_child_objects,
        change_many_at_once,
        upsert,
        edit_tags,
        choose_pages,
        change_in_a_transaction_that_is_partly_undone,
        change_collections_and_sites,
        delete_users,
    ):
        operations.run(operation)


def publish_revisions() -> None:
    page = SimplePage.objects.first()
    for number in range(5):
        page.title = f"Title {number} é \\ 'quoted' \U0001f600"
        page.content = f"<p>{'x' * 4000} {number}</p>\r\n\u2028"
        page.save_revision().publish()


def copy_move_and_delete_pages() -> None:
    event = EventPage.objects.filter(speaker__isnull=False).first()
    for number in range(3):
        copy = event.copy(
            update_attrs={"slug": f"copy-{number}", "title": f"copy {number}"}, recursive=True
        )
        copy.unpublish()
        copy.move(Page.objects.filter(depth=2).first(), pos="last-child")
        if number == 1:
            copy.delete()
    Page.objects.filter(depth__gte=4).first().delete()


def change_child_objects() -> None:
    event = EventPage.objects.filter(speaker__isnull=False).first()
    speaker = event.speakers.first()
    speaker.first_name, speaker.sort_order = "Łukasz", 3
    speaker.save()
    event.speakers.create(first_name="New", last_name="Speaker", sort_order=4)


def change_many_at_once() -> None:
    manager = FeatureCompleteToy.objects
    manager.bulk_create(
        [
            FeatureCompleteToy(name=f"toy {number}", release_date="2024-02-29")
            for number in range(60)
        ]
    )
    manager.filter(name__startswith="toy 1").update(name="same", release_date="1999-12-31")
    changed = list(manager.filter(name__startswith="toy 2"))
    for toy in changed:
        toy.name += "!"
    manager.bulk_update(changed, ["name"])
    manager.filter(name__startswith="toy 3").update(strid=F("name"))
    manager.filter(name__startswith="toy").delete()


def upsert() -> None:
    Advert.objects.bulk_create(
        [Advert(pk=1, text="changed"), Advert(pk=9000, text="new", url="https://example.org/ü")],
        update_conflicts=True,
        unique_fields=["id"],
        update_fields=["text"],
    )


def edit_tags() -> None:
    advert = Advert.objects.first()
    advert.tags.add("one", "two", "drei")
    advert.save()
    advert.tags.remove("two")
    advert.save()


def choose_pages() -> None:
    """Rows of child tables: load_again inserts them before their owners."""
    for page in EventPage.objects.all()[:3]:
        EventPageChooserModel.objects.create(page=page)
        PageChooserModel.objects.create(page=page)
    PageChooserModel.objects.last().delete()


def change_in_a_transaction_that_is_partly_undone() -> None:
    with transaction.atomic():
        Advert.objects.create(text="kept")
        undone = transaction.savepoint()
        Advert.objects.update(text="undone")
        transaction.savepoint_rollback(undone)
        Advert.objects.filter(text="kept").update(url="https://example.org/kept")


def change_collections_and_sites() -> None:
    root = Collection.get_first_root_node()
    child = root.add_child(name="child")
    child.add_child(name="grandchild")
    child.delete()
    Site.objects.update(port=8000, site_name="Site")


def delete_users() -> None:
    get_user_model().objects.filter(is_superuser=False).delete()


def backward(operations: Operations) -> None:
    for app, name in _EARLIER:
        operations.run(migrate, app, name)


def forward(operations: Operations) -> None:
    operations.run(migrate)


def migrate(*target: str) -> None:
    call_command("migrate", *target, verbosity=0, skip_checks=True)


def write_meanwhile(operations: Operations) -> None:
    """Write without Django's models, which have columns that are not there now."""
    for operation in (change_titles, change_adverts):
        operations.run(operation)


def change_titles() -> None:
    Page.objects.update(title=Concat(F("title"), Value(" x")))


def change_adverts() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE tests_advert SET text = text || ' y'")


def load_again(operations: Operations) -> None:
    """Empty all tables in one statement, and then load each child row before its owner."""
    with tempfile.TemporaryDirectory() as directory:
        dump = Path(directory, "all.json")
        operations.run(dump_in_reverse, dump)
        operations.run(flush)
        operations.run(load, dump)


def dump_in_reverse(file: Path) -> None:
    call_command(
        "dumpdata", exclude=["contenttypes", "auth.permission"], output=str(file), verbosity=0
    )
    objects = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(objects[::-1]), encoding="utf-8")


def flush() -> None:
    call_command("flush", interactive=False, verbosity=0)


def load(file: Path) -> None:
    call_command("loaddata", str(file), verbosity=0)


run_stage(
    {
        "base": base,
        "work": work,
        "backward": backward,
        "meanwhile": write_meanwhile,
        "forward": forward,
        "load_again": load_again,
    }
)
