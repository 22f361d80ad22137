import datetime

class CoreProperties:
    title: str
    author: str
    subject: str
    keywords: str
    created: datetime.datetime | None
    modified: datetime.datetime | None
