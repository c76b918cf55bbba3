import type { Words } from "./en.ts";

export const es: Words = {
  locale: "es-ES",
  footer: {
    reason: "Recibe este correo porque su dirección figura en nuestra lista de correo.",
    reasonOfList: (list) => `Recibe este correo porque su dirección figura en la lista «${list}».`,
    unsubscribe: "Darse de baja",
    web: "Ver en el navegador",
    tracking: "Elegir si se cuentan las aperturas y los clics",
  },
  confirmation: {
    subject: "Confirme su suscripción",
    title: "Confirme su suscripción",
    request: (list, team) => `Alguien, probablemente usted, ha pedido recibir «${list}» de ${team} en esta dirección.`,
    open: "Para confirmar su suscripción, abra esta página:",
    button: "Confirmar la suscripción",
    ignore: "Si no ha sido usted, ignore este correo: sin su confirmación no se realizará la suscripción.",
    unnamedTeam: "un remitente",
    unnamedList: "Boletín",
  },
  confirm: {
    title: (list) => `Suscribirse a ${list}`,
    question: (team) => `¿Desea recibir estos correos de ${team}?`,
    done: "Su suscripción está confirmada",
    already: "Su suscripción ya está confirmada",
    future: (list, team) => `Recibirá «${list}» de ${team}.`,
    held: "Su confirmación ha quedado registrada",
    suppressed: (team) =>
      `Todavía no recibirá correos: esta dirección figura en la lista de exclusión de ${team}. Pida a ${team} que la retire.`,
    spent: "Este enlace ya no es válido",
    spentReason: "Corresponde a una suscripción anterior. Si desea recibir estos correos, suscríbase de nuevo.",
  },
  signUp: {
    intro: (list, team) => `Suscríbase para recibir «${list}» de ${team}.`,
    email: "Dirección de correo",
    first_name: "Nombre",
    last_name: "Apellidos",
    button: "Suscribirse",
    done: "Revise su correo",
    mailed:
      "Si aún no está suscrito, recibirá un correo en breve. Su suscripción empieza cuando la confirme con el enlace de ese correo.",
    invalid: "Introduzca una dirección de correo, por ejemplo name@example.com.",
    throwaway: "Introduzca una dirección que conserve. No se aceptan direcciones desechables.",
    wait: (seconds) => `Espere ${seconds} segundos y pulse el botón. Así se evitan los programas.`,
    again: "Ha tardado demasiado o se ha enviado dos veces. Rellene de nuevo el formulario.",
    many: "Ha habido demasiadas suscripciones en poco tiempo. Vuelva a intentarlo dentro de una hora.",
    closed: "Este formulario no acepta suscripciones por ahora.",
  },
  optOut: {
    title: (team) => `Darse de baja de los correos de ${team}`,
    reason: (lists, team) => `${team} envió este correo a los suscriptores de ${lists}.`,
    choice: "Elija lo que ya no desea recibir.",
    all: (team) => `Ya no recibirá ningún correo de ${team} en esta dirección.`,
    some: (lists, team) => `Ya no recibirá ${lists} de ${team} en esta dirección.`,
    button: "Darse de baja",
    buttonSome: (lists) => `Darse de baja de ${lists}`,
    buttonAll: (team) => `Darse de baja de todos los correos de ${team}`,
    done: "Se ha dado de baja",
    already: "Ya se había dado de baja",
  },
  undo: {
    button: "Me he dado de baja por error",
    done: "Se ha anulado su baja",
    restored: (team) => `Volverá a recibir los correos de ${team}.`,
    asked: (lists) =>
      `Para ${lists} necesitamos su confirmación: le enviaremos un correo en el plazo de un día. Abra el enlace que contiene.`,
    impossible: "No se puede deshacer desde aquí",
    late: (team) => `Si desea recibir correos de ${team}, suscríbase de nuevo.`,
  },
  tracking: {
    title: (team) => `Aperturas y clics en los correos de ${team}`,
    question: (team) =>
      `¿Permite que ${team} registre cuándo abre los correos que le envía y en qué enlaces hace clic?`,
    granted: (date) => `Lo permitió el ${date}.`,
    denied: (date) =>
      `Lo rechazó el ${date}. No se cuentan las aperturas ni los clics, tampoco los de los correos que ya tiene.`,
    countedSoFar:
      "Todavía no ha respondido. Las aperturas y los clics de este correo se cuentan mientras no lo rechace.",
    notCounted: "Todavía no ha respondido. Las aperturas y los clics de este correo no se cuentan.",
    asked: (words) => `La pregunta fue: ${words}`,
    allow: "Permitir",
    deny: "No permitir",
    done: "Su respuesta ha quedado registrada",
  },
  erased: {
    title: "Sus datos se han borrado",
    unknown: (team) => `${team} ya no sabe a qué dirección se envió este correo.`,
    newer: (team) => `Si recibe correos más recientes de ${team}, utilice el enlace que contienen.`,
  },
  web: {
    expired: {
      title: "Este correo ya no está disponible aquí",
      reason: "Los correos se muestran aquí durante un tiempo limitado. Búsquelo en su buzón.",
    },
    withdrawn: { title: "Esta página no está disponible", reason: "El boletín no está publicado o ya no lo está." },
    empty: "Todavía no hay ningún boletín.",
    feed: "Canal RSS",
    issues: "Todos los números",
    subscribe: "Suscribirse",
  },
  broken: {
    title: "Este enlace no funciona",
    reason: "Puede que esté incompleto. Vuelva a abrirlo desde el correo, o copie el enlace completo.",
  },
  refused: {
    title: "Vuelva a intentarlo dentro de un momento",
    reason: "En este momento no podemos acceder a nuestros datos.",
  },
};
