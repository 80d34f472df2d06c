"""What procrastinate does with its database: ``python procrastinate_work.py STAGE``, in its own
environment.

The package has no tests, so this is a workload of our own: jobs are deferred, done by workers that
run at the same time (SKIP LOCKED), retried, cancelled, refused by a lock, and deleted.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from importlib.resources import files

import psycopg
from operations import Operations, run_stage
from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import AlreadyEnqueued

app = App(connector=PsycopgConnector(conninfo="", max_size=4))


@app.task(queue="sums", pass_context=False)
async def add(a: int, b: int) -> int:
    return a + b


@app.task(queue="failing", retry=RetryStrategy(max_attempts=3, wait=0), pass_context=True)
async def fail_at_first(context: object, name: str) -> None:
    if context.job.attempts < 2:  # type: ignore[attr-defined]
        raise ValueError(f"not yet: {name}")


@app.task(queue="failing")
async def fail_always() -> None:
    raise ValueError("never")


@app.periodic(cron="* * * * * */1")
@app.task(queue="periodic", queueing_lock="tick")
async def tick(timestamp: int) -> None:
    await asyncio.sleep(0)


def base(_: Operations) -> None:
    with app.open():
        app.schema_manager.apply_schema()


def work(operations: Operations) -> None:
    asyncio.run(_work(operations))


async def _work(operations: Operations) -> None:
    async with app.open_async():
        for operation in (
            defer_jobs,
            refuse_a_second_job_of_a_lock,
            cancel_jobs,
            run_workers,
            run_periodic_jobs,
            retry_a_failed_job,
            delete_done_jobs,
        ):
            await _run(operations, operation)


async def _run(operations: Operations, operation: Callable[[], Awaitable[None]]) -> None:
    try:
        await operation()
    except Exception as error:
        operations.failed[f"{operation.__name__}: {type(error).__name__}: {error}"[:300]] += 1
    else:
        operations.done[operation.__name__] += 1


async def defer_jobs() -> None:
    for number in range(40):
        options = {"priority": number % 3, "lock": f"lock {number % 5}"}
        await add.configure(**options).defer_async(a=number, b=-number)
    for name in ("é \\ \" ' \U0001f600", "", "x" * 5000):
        await fail_at_first.defer_async(name=name)
    await fail_always.defer_async()
    await add.configure(schedule_in={"hours": 1}).defer_async(a=1, b=10**20)


async def refuse_a_second_job_of_a_lock() -> None:
    waiting = add.configure(queueing_lock="one at a time", schedule_in={"days": 1})
    try:
        for number in range(2):
            await waiting.defer_async(a=number, b=0)
    except AlreadyEnqueued:
        return
    raise AssertionError("the second job was accepted")


async def cancel_jobs() -> None:
    manager = app.job_manager
    for is_deleted in (False, True):
        number = await add.configure(schedule_in={"hours": 2}).defer_async(a=0, b=0)
        assert await manager.cancel_job_by_id_async(number, delete_job=is_deleted)
    waiting = await manager.list_jobs_async(queueing_lock="one at a time", status="todo")
    for job in waiting:
        assert await manager.cancel_job_by_id_async(job.id)


async def run_workers() -> None:
    """Three workers at a time, until no job is due."""
    queues = ["sums", "failing"]
    await asyncio.gather(
        *(
            app.run_worker_async(
                queues=queues,
                name=f"worker {number}",
                wait=False,
                concurrency=2,
                install_signal_handlers=False,
            )
            for number in range(3)
        )
    )


async def run_periodic_jobs() -> None:
    """One worker for three seconds, in which each second has a job."""
    worker = asyncio.create_task(
        app.run_worker_async(queues=["periodic"], install_signal_handlers=False, wait=True)
    )
    await asyncio.sleep(3)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def retry_a_failed_job() -> None:
    (job, *_) = await app.job_manager.list_jobs_async(status="failed")
    now = datetime.datetime.now(datetime.UTC)
    async with await psycopg.AsyncConnection.connect("", autocommit=True) as session:
        await session.execute(
            "UPDATE procrastinate_jobs SET status = 'todo', scheduled_at = %s WHERE id = %s",
            (now, job.id),
        )
    await run_workers()


async def delete_done_jobs() -> None:
    manager = app.job_manager
    assert await manager.list_jobs_async(status="succeeded")
    await manager.delete_old_jobs(nb_hours=0, queue="sums")


def migrate(operations: Operations) -> None:
    """Run the package's scripts of series 3."""
    scripts = files("procrastinate").joinpath("sql", "migrations")
    for script in sorted(script.name for script in scripts.iterdir()):
        if script.startswith("03."):
            operations.run(run_script, scripts.joinpath(script).read_text(encoding="utf-8"))


def run_script(text: str) -> None:
    with psycopg.connect("", autocommit=True) as session:
        session.execute(text.encode())


run_stage({"base": base, "work": work, "migrate": migrate})
