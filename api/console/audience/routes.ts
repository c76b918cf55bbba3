import { router } from "../../rest/route.ts";

export const audienceRouter = router({});
