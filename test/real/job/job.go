// The whole job with a client that oapi-codegen makes of the document; see generators.test.ts.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	openapi_types "github.com/oapi-codegen/runtime/types"
	mailkeel "mailkeel.test/generators/client"
)

var ctx = context.Background()

func authenticate(_ context.Context, request *http.Request) error {
	request.Header.Set("x-api-key", os.Getenv("KEY"))
	return nil
}

// require ends the program for an answer that is not of the expected status.
func require[Answer any](answer *Answer, status string, err error) *Answer {
	if err != nil {
		log.Fatal(err)
	}
	if answer == nil {
		log.Fatal(status)
	}
	return answer
}

func makeAudience(api *mailkeel.ClientWithResponses) string {
	optin := mailkeel.CreateListBodyOptin("SINGLE")
	list, err := api.CreateListWithResponse(ctx, nil, mailkeel.CreateListBody{Name: "Readers", Optin: &optin})
	id := require(list.JSON201, list.Status(), err).Data.Id
	ids := []string{}
	for _, email := range strings.Split(os.Getenv("ADDRESSES"), ",") {
		person, err := api.CreateSubscriberWithResponse(ctx, nil, mailkeel.CreateSubscriberBody{Email: email})
		ids = append(ids, require(person.JSON201, person.Status(), err).Data.Id)
	}
	added, err := api.AddListSubscribersWithResponse(ctx, id, nil, mailkeel.AddListSubscribersBody{SubscriberIds: ids})
	require(added.JSON200, added.Status(), err)
	return id
}

func sendNewsletter(api *mailkeel.ClientWithResponses) map[string]any {
	subject, from, body := "Hello", os.Getenv("FROM"), "<p>Hello</p>"
	text := mailkeel.CreateNewsletterBody{Name: "Issue", Subject: &subject, FromEmail: &from, Body: &body}
	draft, err := api.CreateNewsletterWithResponse(ctx, nil, text)
	id := require(draft.JSON201, draft.Status(), err).Data.Id
	under := mailkeel.PreviewNewsletterSendParams{IdempotencyKey: "preview " + id}
	previewed, err := api.PreviewNewsletterSendWithResponse(ctx, id, &under)
	preview := require(previewed.JSON200, previewed.Status(), err).Data
	token := mailkeel.SendNewsletterBody{ConfirmationToken: preview.Confirmation.Token}
	sent, err := api.SendNewsletterWithResponse(ctx, id, &mailkeel.SendNewsletterParams{IdempotencyKey: "send " + id}, token)
	require(sent.JSON202, sent.Status(), err)
	for {
		newsletter, err := api.RetrieveNewsletterWithResponse(ctx, id, nil)
		if require(newsletter.JSON200, newsletter.Status(), err).Data.Status == "SENT" {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	today, err := time.Parse(time.DateOnly, os.Getenv("TODAY"))
	require(&today, "TODAY", err)
	query := mailkeel.RetrieveAnalyticsOverviewParams{From: &openapi_types.Date{Time: today}, ResourceId: &id}
	figures, err := api.RetrieveAnalyticsOverviewWithResponse(ctx, &query)
	totals := require(figures.JSON200, figures.Status(), err).Data.Totals
	hook := mailkeel.CreateWebhookBody{Url: os.Getenv("HOOK"), Events: []string{os.Getenv("EVENT")}}
	made, err := api.CreateWebhookWithResponse(ctx, nil, hook)
	webhook := require(made.JSON201, made.Status(), err).Data
	deliveries, err := api.ListWebhookDeliveriesWithResponse(ctx, webhook.Id, nil)
	refused, refusedErr := api.CreateListWithResponse(ctx, nil, mailkeel.CreateListBody{})
	return map[string]any{
		"eligible":   preview.Recipients.Eligible,
		"sent":       totals.Sent,
		"events":     webhook.Events,
		"hasSecret":  len(webhook.Secret) > 0,
		"deliveries": len(require(deliveries.JSON200, deliveries.Status(), err).Data),
		"refusal":    require(refused.JSON400, refused.Status(), refusedErr).Error.Code,
	}
}

func main() {
	made, err := mailkeel.NewClientWithResponses(os.Getenv("API"), mailkeel.WithRequestEditorFn(authenticate))
	api := require(made, "no client", err)
	var result any
	if os.Getenv("LIST") != "" {
		result = sendNewsletter(api)
	} else {
		result = makeAudience(api)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}
