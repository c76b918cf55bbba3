/**
 * Replies of mail servers, in the words of their sources, of providers' lists of errors, and of the bounce rules of ZoneMTA,
 * KumoMTA and others. `%s` stands for the recipient's address.
 */
/** Answers to RCPT that say that the address, or its domain, does not exist: hard. */
export const UNKNOWN_ADDRESS: readonly string[] = `
550 5.1.1 <%s>: Recipient address rejected: User unknown in local recipient table
550 5.1.1 <%s>: Recipient address rejected: User unknown in relay recipient table
550 5.1.1 <%s>: Recipient address rejected: User unknown in virtual alias table
550 <%s>: Recipient address rejected: undeliverable address: host mx.b.example[192.0.2.9] said: 550 5.1.1 <%s>: User unknown (in reply to RCPT TO command)
550 5.1.1 <%s>: Recipient address rejected: undeliverable address: unknown user: "user"
550 5.1.0 <%s>: Recipient address rejected: User has moved to x
551 5.1.6 <%s>: Recipient address rejected: User has moved to new@example.com
550 5.1.1 <%s>... User unknown
553 5.3.0 <%s>... Addressee unknown, relay=[192.0.2.1]
553 5.3.0 <%s>... Recipient address no longer exists
550 5.1.1 <%s>... email address lookup in domain map failed
550 5.1.2 <%s>... Host unknown (Name server: example.net: host not found)
553 5.1.3 <%s>... Invalid host name
553 5.1.3 <%s>... Colon illegal in host name part
550 Unknown user
550 unknown local part
550 Unrouteable address
550 No Such User Here
550-Callout verification failed: 550 5.1.1 no such user
553 sorry, no mailbox here by that name (#5.7.1)
550 sorry, no mailbox here by that name (#5.1.1 - chkuser)
511 sorry, no mailbox here by that name (#5.1.1 - chkuser)
550 sorry, that recipient doesn't exist (#5.7.1)
553 sorry, this recipient is not in my validrcptto list (#5.7.1)
550 no such user (#5.1.1)
550 User unknown.
550 Invalid recipient: <%s>
550 I cannot deliver mail for %s
550 I cannot deliver mail for {%s}
550 5.1.1 Unknown user: %s
550 <%s>, Recipient unknown
550 5.1.1 Recipient unknown <%s>
550 5.1.1 No such user here
550 5.1.1 %s unknown user account
550 %s... No such user
550 5.1.1 unknown or illegal alias: %s
550 Requested action not taken: mailbox unavailable
550 5.1.1 Mailbox not found
550 unknown user <%s>
550 <%s> No such user here
550 5.1.1 User unknown
550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient %s not found by SMTP address lookup
550 5.1.1 RESOLVER.ADR.RecipNotFound; not found
550 5.4.1 Recipient address rejected: Access denied. AS(201806281) [XX.prod.protection.outlook.com]
550 5.4.1 [%s]: Recipient address rejected: Access denied [XX.eop-EUR05.prod.protection.outlook.com]
550-5.1.1 The email account that you tried to reach does not exist. Please try 550-5.1.1 double-checking the recipient's email address for typos or 550 5.1.1 unnecessary spaces.
554 delivery error: dd This user doesn't have a yahoo.com account (%s) [0] - mta1.mail.yahoo.com
552 1 Requested mail action aborted, mailbox not found
550 5.1.1 <%s>: Recipient address rejected: aol.com
550 MAILBOX NOT FOUND
550 5.1.1 Not our Customer
551 not our customer
550 5.1.1 <%s> recipient rejected
550 5.1.1 <%s>: user does not exist
550 Message was not accepted -- invalid mailbox.  Local mailbox %s is unavailable: user not found
550 5.7.1 No such user!
550 Mailbox not found. http://service.mail.qq.com/cgi-bin/help?subtype=1&&id=20022&&no=1000728
550 User not found: %s
550 Invalid User: %s
550 RP:RCPT user not exist
550 %s:user not exist
550 5.1.1 Unbekannter Empfaenger
550 Benutzer nicht vorhanden
550 Empfänger nicht bekannt
550 Adresse unbekannt
550 Adressat unbekannt oder Mailbox deaktiviert
550 Destinataire inconnu ou boite aux lettres desactivee
550 5.1.1 Adresse d au moins un destinataire invalide. Invalid recipient. OFR_416 [416]
550 utilisateur inconnu
550 Destinatario sconosciuto o mailbox disatttivata
550 Destinatario errato
550 Indirizzo inesistente
550 utente sconosciuto
550 Nie ma takiego uzytkownika
550 uzytkownik nieznany
550 5.1.1 Mailbox does not exist
550 Schranka neexistuje
550 El buzon no existe
550 La cuenta de correo no existe
550 Usuario no encontrado
550 Usuario inexistente
550 Endereco inexistente
550 Este usuario nao existe
550 Destinatario desconhecido
550 Gebruiker bestaat niet
550 Onbekende gebruiker
550 Ukendt bruger
550 Okänd mottagare
550 Tuntematon vastaanottaja
550 käyttäjää ei ole
550 Felhasználó nem található
550 Ismeretlen felhasználó
550 Άγνωστος χρήστης
550 Неизвестный пользователь
550 Пользователь не существует
550 Почтовый ящик не найден
550 Нет такого адреса
550 Böyle bir kullanıcı yok
550 Kullanıcı bulunamadı
550 המשתמש לא קיים
550 المستخدم غير موجود
550 收件人不存在
550 用户不存在
550 無此使用者
550 查無此人
550 查无此用户
550 該当するユーザーが存在しません
550 そのようなユーザはいません
550 宛先不明
550 사용자를 찾을 수 없습니다
550 존재하지 않는 사용자입니다
550 không tồn tại người dùng
550 ไม่พบผู้ใช้
550 Invalid Recipient - https://community.mimecast.com/docs/DOC-1369#550 [abc]
550 <%s>: Recipient address rejected: No such user (%s)
550 permanent failure for one or more recipients (%s:550 5.1.1 User unknown)
550 Invalid recipient <%s> (#5.1.1)
550 #5.1.0 Address rejected.
550 5.1.0 Address rejected %s
550 5.1.1 Address does not exist
550 5.1.1 Account not found
550 Address unknown
550 Address is unknown
550 Addressee unknown
550 Address invalid
550 bad address %s
501 #5.1.1 bad address %s
550 5.1.1 Bad destination mailbox address
550 Email Address was not found
550 Email address does not exist
550 Invalid or unknown virtual user
550 Invalid mailbox
550 Invalid account
550 No mail box available for this user
550 No one with that email address here
550 no such address
550 no such address here
550 no such email address
550 No such mail drop defined
550 No such mailbox
550 No such person at this address
550 no such recipient
550 No such recipient here
550 That address is not a known user here
550 not a known user
550 not a valid mailbox
550 not a valid user
550 <%s>: not a valid user
550 Recipient not found
550 Recipient unknown
550 server doesn't handle mail for that user
550 This email address is not known to this system
550 unknown address or alias
550 Unknown email address
550 Unknown local part user in <%s>
550 unknown or illegal user: %s
550 Unknown recipient
550 User doesn't exist in this server
550 user invalid
550 User is unknown
550 User not known
550 We are sorry but the address is invalid
550 was not found in LDAP server
550 Unable to find alias user
550 recipient no longer on server: %s
550 Old address no longer valid
550 User (%s) unknown.
550 Mailbox ( %s ) not found or inactivated
550 User not a member of domain: <%s>
550-"The recipient cannot be verified.  Please check all recipients of this message
550-I'm sorry but %s does not have an account here. I will not
550 Command RCPT User <%s> not OK
550 no longer an employee
550 <%s> is no longer an employee of this company
550 No such ID
550 recipient unrecognized
553 address unknown
550 %s is not a valid mailbox
550 mailbox %s does not exist
550 mailbox not available
550 5.2.1 <%s>... User unknown
550 5.1.1 sorry, no such mailbox here
550 #5.1.1 No such user
553 5.1.1 no such address here: %s
550 5.1.1 Recipient is not local
550 Recipient not in our directory
550 5.1.1 recipient does not exist here
550 5.7.1 Recipient not found in directory
550 LDAP: no such recipient
556 Invalid account. Tenant or Domain not found
556 5.1.10 Recipient address has a null MX
556 5.1.10 <%s>: Recipient address rejected: Domain example.net does not accept mail (nullMX)
521 5.3.2 Host does not accept mail
550 Domain does not exist
550 5.1.2 Bad destination system address
550 Host unknown
550 5.4.4 Invalid domain
550 Domain name not found
550 no such domain
585 5.1.1 <%s>: Recipient address rejected: undeliverable address: No such user here
550 User has moved; please use new@example.com
551 User has moved to new@example.com; please update
550 This address no longer exists
550 The address %s no longer exists
550 Address no longer in use
550 This mailbox no longer exists
550 Account has been removed
550 Account deleted
550 This account has been deleted
550 %s is not accepting mail because it does not exist
550 There is no such user
550 There is no user by that name here
550 no account by that name here
550 could not find %s in the user database
550 lookup of user failed: no such user
550 user lookup failure
550 we don't know %s
550 We do not have a user by that name
550 nobody by that name here
550 %s: no such user
550 email name is not found
550 invalid user name
550 User ID unknown
550 Nonexistent user
550 non-existent recipient
550 RCPT TO: invalid address
550 Recipient address invalid
550 invalid destination address
550 undeliverable address
550 unknown destination mailbox
550 delivery to unknown user
550 Unknown Account
550 Unknown User in domain example.net
550 cannot find your recipient
550 mailbox name not valid
550 5.1.1 Delivery has failed to these recipients: The email address you entered couldn't be found
`
  .trim()
  .split("\n");

/** Answers to RCPT with any other reason, and those for now: soft. */
export const OTHER_REFUSAL: readonly string[] = `
450 4.1.1 <%s>: Recipient address rejected: unverified address: connect to mx.b.example[192.0.2.1]:25: Connection refused
450 4.2.0 <%s>: Recipient address rejected: Greylisted, see http://postgrey.schweikert.ch/help/example.net.html
451 4.7.1 Greylisting in action, please come back later
552 5.2.2 <%s>: Recipient address rejected: Mailbox full
452 4.2.2 The email account that you tried to reach is over quota
452-4.2.2 The recipient's inbox is out of storage space.
552 5.2.2 This message is larger than the current system limit or the recipient's mailbox is full. Create a shorter message body or remove attachments and try sending it again.
552 recipient storage full, try again later
550 account is full (quota exceeded)
550 The user(s) account is temporarily over quota
550 user has exhausted allowed storage space
550 User has too many messages on the server
550 User mailbox exceeds allowed size
550 Mailbox size limit exceeded
550 mailfolder is full
550 The users mailfolder is over the allowed quota (size). (#5.2.2)
550 Benutzer hat zuviele Mails auf dem Server
550 Postfach ist voll
550 Mailbox voll
550 Quota violation
552 Mailbox limit exeeded for this email address
554 Quota exceeded (mailbox for user is full)
550 Mailbox is full / Blocks limit exceeded / Inode limit exceeded
552 5.2.2 Over quota
552 Requested mail action aborted: exceeded storage allocation
550 boite pleine
550 La boîte aux lettres du destinataire est pleine
550 Buzón lleno
550 casella piena
550 Caixa postal cheia
550 Mailbox vol
550 Skrzynka pełna
550 почтовый ящик переполнен
550 ящик переполнен
550 邮箱空间不足
550 邮箱已满
550 メールボックスが一杯です
550 容量オーバー
550 Posta kutusu dolu
550 gaosong "(0), ErrMsg=Mailbox space not enough (space limit is 10240KB)
550 user disabled
452 4.2.1 mailbox temporarily disabled: %s
550 <%s> is a deactivated mailbox
550 Mailbox disabled, not accepting messages
550 5.2.1 The email account that you tried to reach is disabled
550 5.2.1 This mailbox has been blocked due to inactivity
550 account inactive
550 %s Account Inactive
550 <%s>: inactive user
550 User suspended
550 account expired
550 <%s>: User status is locked.
553 mailbox %s is restricted
550 <maxqin> is now disabled with MTA service.
550 <%s>: Recipient address rejected: Account closed due to inactivity. No forwarding information is available.
550 <%s>... User account not activated
550 Account is not active
550 Account Closed, Please Remove
505 this account is suspended
554 30 Sorry, your message to %s cannot be delivered. This mailbox is disabled (554.30).
554 delivery error: dd Sorry your message to %s cannot be delivered. This account has been disabled or discontinued [#102]. - mta173.mail.tpe.example.com
550 Message was not accepted -- invalid mailbox.  Local mailbox %s is unavailable: account is disabled
550 Esta casilla ha expirado por falta de uso
550 El usuario esta en estado: inactivo
550 Podane konto jest zablokowane administracyjnie lub nieaktywne
550 Questo indirizzo e' bloccato per inutilizzo
550 5.7.1 Unable to relay for %s
554 5.7.1 <%s>: Relay access denied
550 relay not permitted
550 Relaying denied
550 5.7.1 <%s>... Relaying denied. IP name lookup failed [192.0.2.1]
553 sorry, that domain isn't in my list of allowed rcpthosts (#5.7.1)
550 not local host example.net, not a gateway
550 relaying to <%s> prohibited by administrator
530 5.7.1 Relaying not allowed: %s
550 This system is not configured to relay mail
503 This mail server requires authentication when attempting to send to a non-local e-mail address. Please check your mail client settings
550 Authentication is required for relay
530 5.7.0 Authentication required
553 Authentication is required to send mail as <s@b.example>
554 5.7.1 Service unavailable; Client host [192.0.2.1] blocked using zen.spamhaus.org; https://www.spamhaus.org/query/ip/192.0.2.1
550 5.7.1 Unfortunately, messages from [192.0.2.1] weren't sent. Please contact your Internet service provider since part of their network is on our block list (S3150).
550 5.7.606 Access denied, banned sending IP [192.0.2.1]
550 5.7.511 Access denied, banned sender[192.0.2.1]
550 SC-001 (COL004-MC1F10) Unfortunately, messages from 192.0.2.1 weren't sent.
550 DY-001 (SNT0) Unfortunately, messages from 192.0.2.1 weren't sent
421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints - 4.16.55.1
553 5.7.1 [BL21] Connections will not be accepted from 192.0.2.1, because the ip is in Spamhaus's list
554 5.7.9 Message not accepted for policy reasons. See https://postmaster.yahooinc.com/error-codes
554-(RTR:BL) http://postmaster.info.aol.com/errors/554rtrbl.html
550 5.7.1 [192.0.2.1 12] Our system has detected that this message is likely unsolicited mail.
550-5.7.26 This mail has been blocked because the sender is unauthenticated.
550 5.7.1 The user or domain that you are sending to (or from) has a policy that prohibited the mail that you sent.
550 High probability of spam
550 spam message rejected. Please visit http://help.mail.ru/notspam-support/id
550 Mail content denied. http://service.mail.qq.com/cgi-bin/help
550 Mail is rejected by recipients
550 Domain frequency limited
550 Ip frequency limited
554 DT:SPM 163 mx1,D8CowA
550 MI:IMF 163
550 RP:TRC 163 smtp
553 Requested action not taken: NULL sender is not allowed
550 Requested action not taken: mail IsCNAPF76kMDARUY.56621S2 is rejected,mx3,BM
554 5.7.1 Spam message rejected by our content filter
550 5.7.1 Message rejected due to content restrictions
550 Requested action not taken: mailbox unavailable For explanation visit http://postmaster.gmx.com/en/error-messages?ip=192.0.2.1&c=bip. Reject due to policy restrictions.
554-gmx.net (mxgmx101) Nemesis ESMTP Service not available 554-No SMTP service 554-Bad DNS PTR resource record.
554 IP=192.0.2.1 - A problem occurred. (Ask your postmaster for help or to contact ann@example.org to clarify.) (BL)
550 5.7.1 Message rejected because of SPF policy
550 5.7.23 SPF validation failed
550 SPF check failed
550 Sender verify failed
550-Verification failed for <s@b.example> 550-No Such User Here 550 Sender verify failed
553 5.1.8 <s@b.example>... Domain of sender address s@b.example does not exist
450 4.1.8 <s@b.example>: Sender address rejected: Domain not found
550 5.1.0 <s@b.example>: Sender address rejected: User unknown in virtual mailbox table
554 5.1.8 <s@b.example>: Sender address rejected: Domain not found
550 Verify mailfrom failed,blocked
501 %s Sender email is not in my domain
554 sender is rejected: 0,mx20,wKjR5bDrnoM2yNtEZVAkBg==.32467S2
554 <unknown[192.0.2.1]>: Client host rejected: Access denied
554 5.7.1 <mx.b.example[192.0.2.1]>: Client host rejected: Access denied
554 Connection refused(mx). MAIL FROM [s@b.example] mismatches client IP [192.0.2.1].
553 User refused to receive this mail.
554 Message refused
550 Message denied
554 5.7.1 Message scored too high on spam scale.  For help, please quote incident ID 22492290.
550 sorry, it seems as a junk mail
553-Message filtered. Please see the FAQs section on spam
552 5.3.4 Message size exceeds fixed limit
552 sorry, that message size exceeds my databytes limit (#5.3.4)
552 5.2.3 Message length exceeds administrative limit
550 5.7.1 RESOLVER.RST.AuthRequired; authentication required [Stage: CreateMessage]
550 5.7.133 RESOLVER.RST.SenderNotAuthenticatedForGroup; authentication required
550 5.7.129 RESOLVER.RST.RestrictedToRecipientsPermission; not authorized
550 5.2.3 RESOLVER.RST.RecipSizeLimit; message too large for this recipient
550 5.4.14 Hop count exceeded - possible mail loop ATTR34
550 4.4.7 QUEUE.Expired; message expired
450 4.4.316 Connection refused [Message=Socket error code 10061]
550 5.4.316 Message expired, connection refused
550 5.7.64 TenantAttribution; Relay Access Denied
554 5.4.0 Error: too many hops
554 5.4.6 Too many hops 26 (25 max): from <s@b.example>
554 too many hops, this message is looping (#5.4.6)
554 mail server permanently rejected message (#5.3.0)
451 4.3.0 Temporary lookup failure
450 4.4.2 Timeout
421 Too many connections from your IP
421 4.7.0 Try again later, closing connection
550 5.4.5 Daily user sending quota exceeded.
550-5.2.1 The user you are trying to contact is receiving mail at a rate that prevents additional messages from being delivered.
554 Transaction failed
554 5.6.0 Message with invalid header rejected, id=13462-01
550 Content reject. FAAAANsG60M9BmDT.1
552 MessageWall: MIME/REJECT: Invalid structure
553 Mail data refused by AISP, rule [169648].
553 5.3.5 system config error
451 System(u) busy, try again later.
451 mta172.mail.tpe.example.com Resources temporarily unavailable. Please try again later.  [#4.16.4:70].
550 5.7.1 This message has been blocked because it contains a virus
554 5.7.1 virus Eicar-Test-Signature detected by ClamAV
550 5.0.0 <%s>... Can't create output
550 Administrative prohibition
550 Access denied
554 5.7.1 Access denied
550 You have been blocked by the recipient
550 5.7.1 Rejected by header based manually Blocked Senders: s@b.example
550 Administrative prohibition - envelope blocked - https://community.mimecast.com/docs/DOC-1369#550
554 Email rejected due to security policies - https://community.mimecast.com/docs/DOC-1369#554
551 5.7.1 recipient denied you
550 HVU:B1 The URL contained in the email
521 5.7.1 Service unavailable; client [192.0.2.1] blocked using dnsbl.sorbs.net
550 We don't accept mail from spammers
550 5.7.25 The IP address sending this message does not have a PTR record setup
550 Reverse DNS lookup failed for host 192.0.2.1
550 Cannot find your reverse hostname
450 4.7.25 Client host rejected: cannot find your hostname, [192.0.2.1]
550 Bad HELO - Host impersonating domain name [b.example]
504 5.5.2 <localhost>: Helo command rejected: need fully-qualified hostname
503 5.5.1 Error: need MAIL command
501 5.5.4 Syntax: MAIL FROM:<address>
550 5.6.9 improper use of 8-bit data in message header
550 maximum allowed line length is 998 octets, got 1024
550 message header size exceeds limit
550 No valid DKIM signature
523 the message was too big for the mailbox
550 5.7.509 Access denied, sending domain b.example does not pass DMARC verification and has a DMARC policy of reject.
550 5.7.515 Access denied, sending domain b.example doesn't meet the required authentication level.
550 ERROR: Mail Refused - see http://www.example.net/
554 5.7.1 Blocked by recipient domain policy
571 5.7.1 Delivery not authorized, message refused
571 Message Refused
450 4.2.1 The user you are trying to contact is receiving mail too quickly.
550 Requested action not taken: too many recipients
452 4.5.3 Too many recipients
550 4.2.1 mailbox temporarily disabled
550 system load is too high
550 The mail server detected your message as spam and has prevented delivery.
550 Rejected by user's blacklist
550 Your message was rejected by this user and was not delivered
550 %s does not accept mail from you
550 User %s does not accept email from s@b.example
550 Wiadomosc zostala odrzucona przez system antyspamowy
550 Die Nachricht wurde als Spam eingestuft
550 El mensaje ha sido rechazado por spam
550 Письмо отклонено как спам
550 邮件被拒绝,垃圾邮件
550 Message considered as spam by recipient's server
552 5.7.0 This message was blocked because its content presents a potential security issue.
550 Mailbox unavailable or access denied
550 Sender frequency limited
550 5.1.1 RCP-P2 http://postmaster.facebook.com/response_codes?ip=192.0.2.1#rcp Refused due to recipient preferences
550 Mail is rejected by recipients
550 user is locked
550 Benutzer hat das Speichervolumen ueberschritten
550 5.2.1 %s... User is inactive
552 looping message
553 host denies the sender
556 remote ip check error
554 Message filtered by the recipient's privacy settings
450 user path no exist
`
  .trim()
  .split("\n");
