import django
from django.conf import settings

settings.configure(
    SECRET_KEY="of a test",
    INSTALLED_APPS=["cache"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    ROOT_URLCONF="cache",
    USE_TZ=False,
)
django.setup()


def pytest_sessionstart(session):
    from django.test.utils import setup_databases, setup_test_environment

    setup_test_environment()
    setup_databases(verbosity=0, interactive=False)
