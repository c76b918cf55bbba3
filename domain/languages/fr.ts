import type { Words } from "./en.ts";

/** No name follows “de”, which would lose its vowel before some. */
export const fr: Words = {
  locale: "fr-FR",
  footer: {
    reason: "Vous recevez cet e-mail car votre adresse figure dans notre liste de diffusion.",
    reasonOfList: (list) => `Vous recevez cet e-mail car votre adresse figure dans la liste «\u00a0${list}\u00a0».`,
    unsubscribe: "Se désabonner",
    web: "Voir dans le navigateur",
    tracking: "Choisir si vos ouvertures et vos clics sont comptés",
  },
  confirmation: {
    subject: "Veuillez confirmer votre inscription",
    title: "Confirmez votre inscription",
    request: (list, team) =>
      `Quelqu’un, probablement vous, a demandé à recevoir à cette adresse «\u00a0${list}\u00a0», envoyé par ${team}.`,
    open: "Pour confirmer votre inscription, ouvrez cette page\u00a0:",
    button: "Confirmer l’inscription",
    ignore:
      "Si cette demande ne vient pas de vous, ignorez cet e-mail\u00a0: sans votre confirmation, l’inscription n’aura pas lieu.",
    unnamedTeam: "un expéditeur",
    unnamedList: "Newsletter",
  },
  confirm: {
    title: (list) => `S’abonner à ${list}`,
    question: (team) => `Souhaitez-vous recevoir ces e-mails envoyés par ${team}\u00a0?`,
    done: "Votre inscription est confirmée",
    already: "Votre inscription est déjà confirmée",
    future: (list, team) => `Vous recevrez «\u00a0${list}\u00a0», envoyé par ${team}.`,
    held: "Votre confirmation est enregistrée",
    suppressed: (team) =>
      `Vous ne recevrez pas encore d’e-mails\u00a0: cette adresse figure dans la liste d’exclusion tenue par ${team}. Demandez à ${team} de l’en retirer.`,
    spent: "Ce lien n’est plus valable",
    spentReason:
      "Il correspond à une inscription antérieure. Si vous souhaitez recevoir ces e-mails, veuillez vous inscrire à nouveau.",
  },
  signUp: {
    intro: (list, team) => `Inscrivez-vous pour recevoir «\u00a0${list}\u00a0», envoyé par ${team}.`,
    email: "Adresse e-mail",
    first_name: "Prénom",
    last_name: "Nom",
    button: "S’inscrire",
    done: "Consultez votre messagerie",
    mailed:
      "Si vous n’êtes pas encore inscrit, vous allez recevoir un e-mail. Votre inscription commence dès que vous la confirmez par le lien de cet e-mail.",
    invalid: "Veuillez saisir une adresse e-mail, par exemple name@example.com.",
    throwaway: "Veuillez saisir une adresse que vous gardez. Les adresses jetables ne sont pas acceptées.",
    wait: (seconds) => `Attendez ${seconds} secondes, puis appuyez sur le bouton. Cela écarte les programmes.`,
    again: "Cela a pris trop de temps ou a été envoyé deux fois. Veuillez remplir de nouveau le formulaire.",
    many: "Il y a eu trop d’inscriptions en peu de temps. Veuillez réessayer dans une heure.",
    closed: "Ce formulaire n’accepte pas d’inscriptions pour le moment.",
  },
  optOut: {
    title: (team) => `Se désabonner des e-mails envoyés par ${team}`,
    reason: (lists, team) => `Cet e-mail a été envoyé par ${team} à ses abonnés (${lists}).`,
    choice: "Choisissez ce que vous ne souhaitez plus recevoir.",
    all: (team) => `Vous ne recevrez plus, à cette adresse, aucun e-mail envoyé par ${team}.`,
    some: (lists, team) => `Vous ne recevrez plus, à cette adresse, ${lists} (${team}).`,
    button: "Se désabonner",
    buttonSome: (lists) => `Ne plus recevoir ${lists}`,
    buttonAll: (team) => `Ne plus recevoir aucun e-mail envoyé par ${team}`,
    done: "Votre désabonnement est enregistré",
    already: "Votre désabonnement est déjà enregistré",
  },
  undo: {
    button: "Annuler mon désabonnement",
    done: "Votre désabonnement est annulé",
    restored: (team) => `Vous recevrez de nouveau les e-mails envoyés par ${team}.`,
    asked: (lists) =>
      `Pour ${lists}, il nous faut votre confirmation\u00a0: nous vous enverrons un e-mail dans les 24\u00a0heures. Veuillez ouvrir le lien qu’il contient.`,
    impossible: "L’annulation n’est pas possible ici",
    late: (team) => `Si vous souhaitez recevoir les e-mails envoyés par ${team}, veuillez vous inscrire à nouveau.`,
  },
  tracking: {
    title: (team) => `Ouvertures et clics dans les e-mails envoyés par ${team}`,
    question: (team) =>
      `Autorisez-vous ${team} à enregistrer quand vous ouvrez ses e-mails et les liens sur lesquels vous y cliquez\u00a0?`,
    granted: (date) => `Vous l’avez autorisé le ${date}.`,
    denied: (date) =>
      `Vous l’avez refusé le ${date}. Les ouvertures et les clics ne sont pas comptés, y compris dans les e-mails déjà reçus.`,
    countedSoFar:
      "Vous n’avez pas encore répondu. Les ouvertures et les clics dans cet e-mail sont comptés tant que vous ne refusez pas.",
    notCounted: "Vous n’avez pas encore répondu. Les ouvertures et les clics dans cet e-mail ne sont pas comptés.",
    asked: (words) => `La question était\u00a0: ${words}`,
    allow: "Autoriser",
    deny: "Refuser",
    done: "Votre réponse est enregistrée",
  },
  erased: {
    title: "Vos données ont été effacées",
    unknown: (team) => `${team} ne sait plus à quelle adresse cet e-mail a été envoyé.`,
    newer: (team) =>
      `Si vous recevez des e-mails plus récents envoyés par ${team}, veuillez utiliser le lien qu’ils contiennent.`,
  },
  web: {
    expired: {
      title: "Cet e-mail n’est plus disponible ici",
      reason: "Les e-mails sont affichés ici pendant une durée limitée. Veuillez consulter votre boîte de réception.",
    },
    withdrawn: {
      title: "Cette page n’est pas disponible",
      reason: "La newsletter n’est pas publiée, ou ne l’est plus.",
    },
    empty: "Aucune newsletter pour le moment.",
    feed: "Flux RSS",
    issues: "Tous les numéros",
    subscribe: "S’abonner",
  },
  broken: {
    title: "Ce lien ne fonctionne pas",
    reason: "Il est peut-être incomplet. Veuillez l’ouvrir à nouveau depuis l’e-mail, ou le copier intégralement.",
  },
  refused: {
    title: "Veuillez réessayer dans un instant",
    reason: "Nos données sont momentanément inaccessibles.",
  },
};
