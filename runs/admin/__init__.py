"""The administrators' pages: tables to look at and edit, and compactions to read beside what they stand for."""

from django.contrib import admin

from runs.admin import compactions, hosts, model_profiles, tables

__all__ = ["compactions", "hosts", "model_profiles", "tables"]

admin.site.site_header = "agentsite"
admin.site.site_title = "agentsite"
admin.site.index_title = "What is kept"
