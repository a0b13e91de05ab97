"""Store static files under names that change with their content: browsers may keep them for good."""

from whitenoise.storage import CompressedManifestStaticFilesStorage


class HashedStaticFiles(CompressedManifestStaticFilesStorage):
    """Names modules by hash in imports too: a new version of one is never hidden behind an old one."""

    support_js_module_import_aggregation = True
