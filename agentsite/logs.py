"""The format of a log record: always one line."""

import json
import logging
from datetime import UTC, datetime


class OneLine(logging.Formatter):
    """`time LEVEL logger message`, then the traceback, if any, as one JSON string."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a single line of text."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        message = record.getMessage().replace("\r", "\\r").replace("\n", "\\n")
        line = f"{at}Z {record.levelname} {record.name} {message}"
        if record.exc_info:
            line += " traceback=" + json.dumps(self.formatException(record.exc_info), ensure_ascii=False)
        return line
