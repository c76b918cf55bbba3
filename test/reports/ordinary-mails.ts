/** Neither bounces nor complaints: sender, subject, text and further lines of the header. */
const TABLE = String.raw`
Ann <ann@example.net> ¦ Out of Office: Hello ¦ I am out of the office until Monday with no access to email. Your message has not been delivered to anybody else. Contact bob@example.net, tel. 550 5.1.1.
Ann <ann@example.net> ¦ Automatic reply: Undeliverable: Hello ¦ I am away. Your message could not be read. user@example.net
Postmaster <postmaster@example.net> ¦ Out of office ¦ Your mail was received by the postmaster. I'm on leave until May. Undeliverable questions go to ann@example.net.
ann@example.net ¦ I no longer work at Example ¦ Hello, this email address is no longer in use. ann@example.net does not exist any more. Please write to bob@example.net. Your message was not delivered.
ann@example.net ¦ Email address no longer valid ¦ The address ann@example.net is no longer valid, your mail has not been forwarded and could not be delivered. Please use bob@example.net.
Ann <ann@example.net> ¦ Abwesenheitsnotiz: Hallo ¦ Ich bin bis 3.5. nicht im Büro. Ihre Nachricht wird nicht weitergeleitet und konnte nicht zugestellt werden an die Vertretung. bob@example.net
Ann <ann@example.net> ¦ Automatische Antwort: Hallo ¦ Diese Adresse ist nicht mehr gültig. user@example.net ist unbekannt verzogen.
ann@example.net ¦ Réponse automatique : Bonjour ¦ Je suis absente du bureau. Votre message n'a pas été transmis. L'adresse user@example.net n'existe plus.
ann@example.net ¦ Respuesta automática: Hola ¦ Estoy fuera de la oficina. No se ha podido entregar su mensaje a otra persona. user@example.net
ann@example.net ¦ Risposta automatica: Ciao ¦ Sono fuori ufficio. Impossibile rispondere. user@example.net
ann@example.net ¦ Resposta automática: Olá ¦ Estou ausente. Não foi possível ler. user@example.net
ann@example.net ¦ Automatisch antwoord: Hallo ¦ Ik ben afwezig. Uw bericht is niet afgeleverd bij een ander. user@example.net
ann@example.net ¦ Autosvar: Hej ¦ Jag är på semester. Ditt meddelande kunde inte levereras till någon annan.
ann@example.net ¦ Automatická odpověď: Ahoj ¦ Jsem mimo kancelář.
ann@example.net ¦ Automatyczna odpowiedź: Cześć ¦ Jestem na urlopie. Nie można dostarczyć.
ann@example.net ¦ Автоответ: Привет ¦ Я в отпуске. Ваше письмо не может быть доставлено другому. user@example.net
ann@example.net ¦ 自动回复: 你好 ¦ 您好，我已收到您的邮件，目前不在，无法发送回复。user@example.net
ann@example.net ¦ 自動応答: こんにちは ¦ ただいま不在のため返信できません。user@example.net
ann@example.net ¦ 부재중: 안녕 ¦ 부재중입니다. 답장을 전송하지 못합니다. user@example.net
ann@example.net ¦ Otomatik yanıt: Merhaba ¦ Ofis dışındayım.
Helpdesk <helpdesk@example.net> ¦ [#5501] Delivery problem: ticket received ¦ Thank you for contacting us. Your ticket 550-511 about failed delivery has been received.
Mail Delivery Help <support@example.net> ¦ Your question about delivery failure ¦ Hi, the delivery of your message failed because the user unknown error is shown: 550 5.1.1 User unknown. Best, Bob
ann@example.net ¦ Re: Undelivered Mail Returned to Sender ¦ Did you see this? <user@example.net>: 550 5.1.1 User unknown ¦ In-Reply-To: <1.x@sender.example>
ann@example.net ¦ Fwd: failure notice ¦ ---------- Forwarded message ----------\nFrom: MAILER-DAEMON@x.example\n\nHi. This is the qmail-send program.\n<user@example.net>:\nSorry, no mailbox here by that name. (#5.1.1)\n\n--- Below this line is a copy of the message.\n\nReturn-Path: <bounce@sender.example>\nReceived: x
ann@example.net ¦ TR: Échec de la remise ¦ Bonjour, vous voyez ? Votre message n'a pas pu être remis: 550 5.1.1 inconnu\nReceived: x
ann@example.net ¦ WG: Unzustellbar: Hallo ¦ Siehe unten.\n\nIhre Nachricht konnte nicht zugestellt werden. 550 5.1.1 unbekannt
ann@example.net ¦ RV: No se puede entregar ¦ mira\n550 5.1.1 usuario desconocido, no se pudo entregar
ann@example.net ¦ 回复：系统退信 ¦ 请看 550 5.1.1 用户不存在 无法投递
ann@example.net ¦ 转发：系统退信 ¦ 请看 550 5.1.1 用户不存在 无法投递
ann@example.net ¦ Rif: Mancata consegna ¦ 550 5.1.1 utente sconosciuto, impossibile consegnare
ann@example.net ¦ ENC: Falha na entrega ¦ 550 5.1.1 usuario inexistente não foi entregue
ann@example.net ¦ VS: Levering mislykkedes / could not deliver ¦ 550 5.1.1 ukendt bruger was not delivered
Parcels <noreply@parcels.example> ¦ Delivery failed: we could not deliver your parcel ¦ Delivery of your parcel failed. 550 5.1.1 Address unknown.\nuser@example.net
Postal Service <postmaster@post.example> ¦ Your parcel is delayed ¦ Your parcel 4711 is delayed. We will retry.
news-bounces@lists.example ¦ Bounce action notification ¦ This is a Mailman mailing list bounce action notice:\n\n    List:       news\n    Member:     user@example.net\n    Action:     Subscription disabled.\n    Reason:     Excessive or fatal bounces.\n ¦ Precedence: list
news-owner@lists.example ¦ Your message to News awaits moderator approval ¦ Your mail to 'News' with the subject Hello is being held until the list moderator can review it for approval. ¦ Precedence: bulk
mailman@lists.example ¦ confirm 550511 ¦ Mailing list subscription confirmation notice. Email address user@example.net.
ezmlm <news-help@lists.example> ¦ ezmlm warning ¦ Messages to you seem to have been bouncing. I've attached a copy of the first bounce message I received.\n\n--- Enclosed is a copy of the bounce message I received.\n\nReturn-Path: <>\nReceived: x\n\nSorry, no mailbox here by that name. (#5.1.1)
postmaster@example.net ¦ Quarantine summary ¦ The following messages were quarantined for user@example.net: spam rejected.
postmaster@example.net ¦ Mailbox almost full ¦ Your mailbox is almost full. You will not be able to receive mail. 90% quota.
Microsoft Outlook <postmaster@example.net> ¦ Your mailbox is full ¦ Your mailbox is full. You can't send or receive messages. user@example.net
noreply-dmarc-support@google.com ¦ Report domain: sender.example Submitter: google.com Report-ID: 1 ¦ attached
Mail Delivery Subsystem <mailer-daemon@example.net> ¦ Return receipt ¦ The message was delivered to user@example.net
Mailer-Daemon@example.net ¦ Delivered: Hello ¦ Your message was delivered to the following recipients:\n\nuser@example.net
MAILER-DAEMON@example.net ¦ Read: Hello ¦ Your message was read.
postmaster@example.net ¦ Not read: Hello ¦ Your message\nTo: user@example.net\nwas deleted without being read on Thu.
System Administrator <admin@example.net> ¦ Planned maintenance ¦ Mail delivery may be delayed tonight. Mail will not be lost.
System Administrator <admin@example.net> ¦ Password expired ¦ Your account has been disabled. user@example.net
Spam Arrest <user@example.net> ¦ Re: Hello (verification needed) ¦ Your message has not been delivered. Please click the link to verify you are a real person.
BoxBe <noreply@boxbe.example> ¦ Your message is waiting for approval ¦ user@example.net uses a guest list. Your message was not delivered yet. Confirm that you are human.
ann@example.net ¦ unsubscribe ¦ Please remove me. My mails are undeliverable.
ann@example.net ¦ Stop spamming me ¦ This is abuse! I will report you. Feedback-Type: abuse\nOriginal-Rcpt-To: ann@example.net
abuse@provider.example ¦ Re: [abuse #55] Spam complaint ¦ We have received your complaint about spam from 192.0.2.1. Thank you.
abuse@provider.example ¦ Abuse report received ¦ Thank you for your report. This is an automated acknowledgment.
postmaster@example.net ¦ Welcome ¦ Your new mailbox user@example.net is ready.
Mail System Internal Data <MAILER-DAEMON@example.net> ¦ DON'T DELETE THIS MESSAGE -- FOLDER INTERNAL DATA ¦ This text is part of the internal format of your mail folder, and is not a real message.
Cron Daemon <root@example.net> ¦ Cron <root@mx> /usr/bin/fetch ¦ fetch: could not deliver: 550 5.1.1 User unknown\nfailed
logwatch@example.net ¦ Logwatch: mail delivery failures ¦ 550 5.1.1 User unknown: 4 times\n    user@example.net\n failed deliveries\n
monitor@example.net ¦ ALERT: mail delivery failed on host mx ¦ Check smtp could not deliver: 421 timeout, 550 5.7.1 relay
Shop <orders@shop.example> ¦ Order failed: we could not process ¦ Your order could not be processed and was not delivered. user@example.net 550 EUR
ann@example.net ¦ Message delivery delayed ¦ Sorry that I answer so late, delivery of my mail was delayed.
Ann <ann@example.net> ¦ - ¦ no such user
postmaster@example.net ¦ Re: Hello ¦ Dear sender, I am the postmaster. We looked into it: the mail was rejected since the address is not listed. Regards
ann@example.net ¦ Absence du bureau ¦ Je suis absent jusqu'au 3 mai.
ann@example.net ¦ 不在通知 ¦ 只今不在にしております。
ann@example.net ¦ Re: News ¦ I no longer work here. This mailbox does not exist any more; mail user unknown@example.net instead. ¦ In-Reply-To: <1.x@example.org>\nAuto-Submitted: auto-replied
Postmaster <postmaster@example.net> ¦ Autoreply: News ¦ Thank you for your message. We could not answer every mail; write to help@example.net. ¦ Auto-Submitted: auto-replied
ann@example.net ¦ Please confirm your message ¦ Your message was not delivered yet: confirm that you are a person at https://challenge.example/550.
news-owner@lists.example ¦ Welcome to the list ¦ You are subscribed. Mail that cannot be delivered disables your account. ¦ List-Id: <news.lists.example>
Bank <noreply@bank.example> ¦ Your account has been disabled ¦ Your mailbox is full of offers: 552 of them. User unknown to us.
Ann <ann@example.net> ¦ Fwd: Undelivered Mail Returned to Sender ¦ What is this?\n\n> I'm sorry to have to inform you that your message could not be delivered.\n> <user@example.net>: host mx said: 550 5.1.1 User unknown (in reply to RCPT TO command)
Ann <ann@example.net> ¦ Undelivered mail ¦ Why do my customers get 'user unknown' when the delivery fails? Your message could not be delivered, it says.
ann@example.net ¦ Complaint about message from you ¦ This is spam. Abuse! Feedback-Type: abuse
Mail Delivery Help <unknown+answer@example.net> ¦ Re: News ¦ A mail with this subject could not be delivered.\nAsk the desk at helpers@example.net, which knows the addresses. ¦ Auto-Submitted: auto-replied
staff@example.net ¦ complaint about message from 192.0.2.1 ¦ X-HmXmrOriginalRecipient: user@example.net\nThe mail is below.
Ana <ana@example.net> ¦ Samodejni odgovor: Undelivered ¦ Na dopustu sem.\n\n-----Original Message-----\nThis could not be delivered. 550 5.1.1 User unknown ¦ Auto-Submitted: auto-replied
Jonas <jonas@example.net> ¦ Automatinis atsakymas: Delivery failed ¦ Atostogauju. It could not be delivered to user@example.net.\n\n-----Original Message-----\nReceived: x ¦ X-Autoreply: yes
Eva <eva@example.net> ¦ Sjálfvirkt svar: Returned mail ¦ Ég er í fríi. It was returned and could not be delivered.\n\n-----Original Message-----\nReceived: x ¦ Precedence: auto_reply
Ann <ann@example.net> ¦ News ¦ I am not subscribed to this list. Please stop.
ann@example.net ¦ unsubscribe ¦ A mail program sent this email to unsubscribe from the message. ¦ Auto-Submitted: auto-replied
`;

export const ORDINARY_MAILS: readonly [from: string, subject: string, text: string, more?: string][] = TABLE.trim()
  .split("\n")
  .map((line) => {
    const [from = "", subject = "", text = "", more] = line
      .split(" ¦ ")
      .map((cell) => (cell === "-" ? "" : cell.replaceAll("\\n", "\n")));
    return more === undefined ? [from, subject, text] : [from, subject, text, more];
  });
