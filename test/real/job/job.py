"""The whole job with a client that openapi-python-client makes of the document; see generators.test.ts."""

import json
import os
import time
from datetime import date

from client import AuthenticatedClient
from client.api.analytics import retrieve_analytics_overview
from client.api.lists import add_list_subscribers, create_list
from client.api.newsletters import create_newsletter, preview_newsletter_send, retrieve_newsletter, send_newsletter
from client.api.subscribers import create_subscriber
from client.api.webhooks import create_webhook, list_webhook_deliveries
from client.models import (
    AddListSubscribersBody,
    CreateListBody,
    CreateListBodyOptin,
    CreateNewsletterBody,
    CreateSubscriberBody,
    CreateWebhookBody,
    ErrorAnswer,
    SendNewsletterBody,
)

env = os.environ
api = AuthenticatedClient(base_url=env["API"], token=env["KEY"], auth_header_name="x-api-key", prefix="")


def data_of(answer):
    """The data of an answer; a refusal's code ends the program."""
    if answer is None or isinstance(answer, ErrorAnswer):
        raise SystemExit(answer.error.code if answer else "an undocumented status")
    return answer.data


def make_audience():
    body = CreateListBody(name="Readers", optin=CreateListBodyOptin.SINGLE)
    list_id = data_of(create_list.sync(client=api, body=body)).id
    bodies = [CreateSubscriberBody(email=email) for email in env["ADDRESSES"].split(",")]
    ids = [data_of(create_subscriber.sync(client=api, body=body)).id for body in bodies]
    data_of(add_list_subscribers.sync(list_id, client=api, body=AddListSubscribersBody(subscriber_ids=ids)))
    return list_id


def send_a_newsletter():
    text = CreateNewsletterBody(name="Issue", subject="Hello", from_email=env["FROM"], body="<p>Hello</p>")
    draft = data_of(create_newsletter.sync(client=api, body=text))
    preview = data_of(preview_newsletter_send.sync(draft.id, client=api, idempotency_key=f"preview {draft.id}"))
    body = SendNewsletterBody(confirmation_token=preview.confirmation.token)
    data_of(send_newsletter.sync(draft.id, client=api, body=body, idempotency_key=f"send {draft.id}"))
    while data_of(retrieve_newsletter.sync(draft.id, client=api)).status != "SENT":
        time.sleep(0.2)
    today = date.fromisoformat(env["TODAY"])
    figures = data_of(retrieve_analytics_overview.sync(client=api, from_=today, resource_id=draft.id))
    hook = CreateWebhookBody(url=env["HOOK"], events=[env["EVENT"]])
    webhook = data_of(create_webhook.sync(client=api, body=hook))
    return {
        "eligible": preview.recipients.eligible,
        "sent": figures.totals.sent,
        "events": webhook.events,
        "hasSecret": len(webhook.secret) > 0,
        "deliveries": len(data_of(list_webhook_deliveries.sync(webhook.id, client=api))),
        "refusal": create_list.sync(client=api, body=CreateListBody(name="")).error.code,
    }


print(json.dumps(send_a_newsletter() if "LIST" in env else make_audience()))
