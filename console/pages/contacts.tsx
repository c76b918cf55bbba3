import { People } from "../parts/audience/people.tsx";

/** The people whom segments select, and campaigns mail. */
export const Page = () => <People kind="contacts" />;
