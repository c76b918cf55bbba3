import { address, personName, shownAddress, shownNames, timestamps } from "./fields.ts";

const lastName = personName.meta({ examples: ["Lovelace"] });

export const personBody = {
  email: address,
  first_name: personName.default(null),
  last_name: lastName.default(null),
};

/** The same where a field that is left out stays as it is. */
export const personPatch = {
  email: address.optional(),
  first_name: personName.optional(),
  last_name: lastName.optional(),
};

/** The fields of a subscriber or a contact in an answer, besides its kind and id. */
export const shownPerson = { email: shownAddress, ...shownNames, ...timestamps };
