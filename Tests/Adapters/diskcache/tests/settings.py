SECRET_KEY = "of a test"
INSTALLED_APPS = ["tests"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
ALLOWED_HOSTS = ["testserver"]
USE_TZ = True
