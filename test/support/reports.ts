export const RETURN_PATH_DOMAIN = "bounces.example.com";

/** When soft bounces suppress an address, as by default. */
export const SOFT_BOUNCE_POLICY = { SOFT_BOUNCES_TO_SUPPRESS: 5, SOFT_BOUNCE_WINDOW_DAYS: 30 };

/** A notification that a server sends when it cannot deliver. */
export const bounce = (status: string, diagnostic: string, returned = "Subject: Hello\n\nHello"): string =>
  `From: <MAILER-DAEMON@relay.example>
Subject: Undelivered Mail Returned to Sender
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary="b"

--b

I could not deliver your mail.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; relay.example

Final-Recipient: rfc822; someone@elsewhere.example
Action: ${status.startsWith("2") ? "delivered" : "failed"}
Status: ${status}
Diagnostic-Code: smtp; ${diagnostic}

--b
Content-Type: text/rfc822-headers

${returned}
--b--
`;
export const HARD = bounce("5.1.1", "550 5.1.1 User unknown");
export const SOFT = bounce("5.2.2", "552 5.2.2 Mailbox full");

/** A complaint of a feedback loop, with more fields, and the header of the mail that it returns. */
export const complaint = (fields = "", returned = "Subject: Hello\n"): string =>
  `From: <fbl@provider.example>
Subject: report
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary="b"

--b
Content-Type: message/feedback-report

Feedback-Type: abuse
Version: 1
${fields}
--b
Content-Type: message/rfc822

${returned}
Hello
--b--
`;
export const COMPLAINT = complaint();
