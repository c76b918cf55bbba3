import { People } from "../parts/audience/people.tsx";

/** The people on the team's lists, who get newsletters. */
export const Page = () => <People kind="subscribers" />;
