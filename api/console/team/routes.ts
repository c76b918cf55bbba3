import { router } from "../../rest/route.ts";

export const teamRouter = router({});
